#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runs of tools/bench/compare.sh as a table, as JSON and as a plot.

    tools/bench/report.py RUNS.jsonl --results DIRECTORY [--keys N ...]

A line of RUNS.jsonl is one run: round, variant, workload, connections, pipeline, and under `load` what
fencekv_bench_load printed. Ratios are formed within a round, of runs that were minutes apart at most,
and the median of them is what is compared with the target: the machine's good and bad minutes cancel
out in it, which they do not in the ratio of two medians.
"""

import argparse
import collections
import datetime
import html
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

# What is compared with what, and at least how much faster it has to be.
Row = collections.namedtuple("Row", "label ours workload peer peer_workload shapes")
ROWS = [
    Row("fenced write", "fencekv-sync", "write", "redis-always", "write",
        {(50, 1): 1.2, (50, 16): 1.2, (200, 1): 1.2, (200, 16): 1.2}),
    Row("fenced write", "fencekv-process", "write", "redis-everysec", "write",
        {(50, 1): 1.2, (50, 16): 1.2, (200, 1): 1.2, (200, 16): 1.2}),
    Row("fenced write", "fencekv-sync", "write", "postgres-on", "write",
        {(50, 1): 8.0, (50, 16): 8.0}),
    # No target: of sixteen writes it commits one, and promises all or nothing, which nobody else does.
    Row("fenced write", "fencekv-sync", "write", "postgres-batch", "write", {(50, 16): None}),
    Row("fenced write", "fencekv-sync", "write", "etcd-one", "write",
        {(50, 1): 10.0, (200, 1): 10.0}),
    Row("fenced write", "fencekv-sync", "write", "disk-sync", "write", {(1, 1): 0.9}),
    Row("fenced write", "fencekv-sync", "write", "redis-always", "write", {(1, 1): None}),
    Row("fenced write", "fencekv-sync", "write", "postgres-on", "write", {(1, 1): None}),
    Row("fenced write", "fencekv-process", "write", "postgres-off", "write",
        {(50, 1): None, (50, 16): None}),
    # No target: most of both is transport. What a refusal costs beside a write tools/bench/embedded.sh
    # compares.
    Row("stale write", "fencekv-sync", "stale", "fencekv-sync", "write", {(50, 1): None}),
    Row("stale write", "fencekv-process", "stale", "fencekv-process", "write", {(50, 16): None}),
    Row("GET", "fencekv-process", "get", "redis-everysec", "get", {(50, 1): 1.0, (50, 16): 0.7}),
    Row("FENCE.GET", "fencekv-process", "fenced-get", "redis-everysec", "get",
        {(50, 1): 1.0, (50, 16): 0.7}),
    Row("lease acquire + release", "fencekv-sync", "lease", "redis-always", "lease",
        {(50, 1): 1.2}),
    # No target: Redis promises less here than a lease that survives a crash of the process.
    Row("lease acquire + release", "fencekv-process", "lease", "redis-everysec", "lease",
        {(50, 1): None}),
    # No target either: an advisory lock is not durable at all.
    Row("lease acquire + release", "fencekv-sync", "lease", "postgres-on", "lease",
        {(50, 1): None}),
    Row("lease acquire + release", "fencekv-sync", "lease", "etcd-one", "lease", {(50, 1): 15.0}),
    # No target: its names have no time of their own.
    Row("lease acquire + release", "fencekv-sync", "lease", "etcd-session", "lease",
        {(50, 1): None}),
    Row("fenced write", "fencekv-sync@16", "write", "fencekv-sync@1", "write", {(50, 1): 0.9}),
    Row("fenced write", "fencekv-process@16", "write", "fencekv-process@1", "write",
        {(50, 16): 0.9}),
]

CONFIGURATION = """\
fencekv  fencekv-server with its defaults but --durability: `sync` answers when the write survives a
         power cut, `process` when it survives a crash of the process; @N: with --io-threads N.
redis    redis-server --appendonly yes --appendfsync always|everysec, without snapshots (--save '')
         and without rewrites of the log, otherwise its defaults. A fenced write is EVALSHA of a
         script over a hash with the fields f and v; a lease is SET NX PX and a script that deletes
         what is still the caller's. GET reads a plain string.
postgres PostgreSQL with its defaults but max_connections and synchronous_commit (on|off); prepared
         statements in libpq's pipeline mode, each a transaction of its own that is committed and
         answered by itself; `batch`: synchronous_commit on, and a batch is one transaction. A fenced
         write is one INSERT ... ON CONFLICT (key) DO UPDATE ... WHERE fence <= excluded.fence; a
         lease is an advisory lock of the session.
etcd     one node with its defaults, by gRPC from the load generator. A fenced write is one Txn with
         one comparison and one put on one key, which holds the fence before the value. A lease is
         LeaseGrant, a Txn that binds the name to it, and LeaseRevoke; `session`: one lease a
         connection, and a cycle is the Txn and a DeleteRange.
disk     no server: a write of what fencekv logs for one and fdatasync, one after the other, on a
         file that grows, on the same disk.
all      new server on a new, empty directory for every run; for reads filled with every key, and each
         read once, so that all of them have all keys in memory. Same keys, random values, connections
         and batches; the load generator on the same machine.
         Writes that are in flight together share a sync, with every server.\
"""


def command_output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def processor_name():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def describe(command, directory):
    """Where and of what the figures are; the stores were in the directory."""
    commit = command_output("git", "rev-parse", "--short=10", "HEAD") or "unknown"
    if command_output("git", "status", "--porcelain", "--untracked-files=no"):
        commit += "-changed"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "command": command,
        "processor": processor_name(),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "file_system": command_output("stat", "-f", "-c", "%T", directory),
    }


def versions():
    """Of the peers."""
    redis = command_output("redis-server", "--version").split()
    programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    postgres = command_output(str(programs[-1]), "--version").split() if programs else []
    etcd = command_output("etcd", "--version").split()
    return {
        "redis": redis[2].removeprefix("v=") if len(redis) > 2 else "unknown",
        "postgres": postgres[2] if len(postgres) > 2 else "unknown",
        "etcd": etcd[2] if len(etcd) > 2 else "unknown",
    }


def read_runs(path):
    """{(variant, workload, connections, pipeline): {round: load}}"""
    runs = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            key = (run["variant"], run["workload"], run["connections"], run["pipeline"])
            runs[key][run["round"]] = run["load"]
    return runs


def summary(loads):
    """One side of a row: medians over the rounds, and how far apart they were."""
    rates = [load["ops_per_second"] for load in loads]
    median = statistics.median(rates)

    def median_of(value):
        return statistics.median(value(load) for load in loads)

    def cost(name):
        return median_of(lambda load: 1e6 * load.get(name, 0) / max(load["operations"], 1))

    return {
        "ops_per_second": median,
        "lowest": min(rates),
        "highest": max(rates),
        "spread": (max(rates) - min(rates)) / median if median > 0 else 0,
        "latency_us": {
            name: median_of(lambda load, name=name: load["latency_us"][name])
            for name in ("p50", "p99", "p99.9", "max")
        },
        "server_cpu_us_an_operation": cost("server_cpu_seconds"),
        "client_cpu_us_an_operation": cost("client_cpu_seconds"),
        "server_cpu_share": median_of(
            lambda load: load.get("server_cpu_seconds", 0) / max(load["seconds"], 1e-9)),
        "client_cpu_share": median_of(
            lambda load: load["client_cpu_seconds"] / max(load["seconds"], 1e-9)),
        "written_bytes_an_operation": median_of(
            lambda load: load.get("server_written_bytes", 0) / max(load["operations"], 1)),
    }


def compare(runs):
    rows = []
    for row in ROWS:
        for (connections, pipeline), target in row.shapes.items():
            ours = runs.get((row.ours, row.workload, connections, pipeline), {})
            peer = runs.get((row.peer, row.peer_workload, connections, pipeline), {})
            rounds = sorted(ours.keys() & peer.keys())
            if not rounds:
                continue
            ratios = [
                ours[i]["ops_per_second"] / max(peer[i]["ops_per_second"], 1e-9) for i in rounds
            ]
            ratio = statistics.median(ratios)
            rows.append({
                "work": row.label,
                "connections": connections,
                "pipeline": pipeline,
                "variant": row.ours,
                "peer": row.peer,
                "rounds": len(rounds),
                "ours": summary([ours[i] for i in rounds]),
                "theirs": summary([peer[i] for i in rounds]),
                "ratio": ratio,
                "ratios": ratios,
                "target": target,
                "is_met": None if target is None else ratio >= target,
            })
    return rows


def title(about, rows):
    names = {"redis": f"Redis {about['redis']}", "postgres": f"PostgreSQL {about['postgres']}",
             "etcd": f"etcd {about['etcd']}", "disk": "the disk"}
    there = {row["peer"].split("-")[0] for row in rows}
    against = [text for peer, text in names.items() if peer in there]
    if len(against) > 1:
        against = [", ".join(against[:-1]), against[-1]]
    against = " and ".join(against) or "itself"
    return f"fencekv {about['commit']} against {against}"


def thousands(number):
    return f"{number / 1000:.1f} k"


def verdict(row):
    if row["is_met"] is None:
        return ""
    return "met" if row["is_met"] else "NOT MET"


def aligned(table):
    """Columns as wide as they must be; the first to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in table
    ]


def to_text(about, rows):
    lines = [
        f"{title(about, rows)}, {about['date']}",
        f"{about['processor']}, {about['processors']} processors, kernel {about['kernel']}, "
        f"{about['file_system'] or 'unknown file system'}",
        f"{about['keys']} keys of 16 bytes, values of {about['value_bytes']} bytes, "
        f"{about['seconds_a_run']} s a run",
        f"command: {about['command']}",
        "",
        CONFIGURATION,
        "",
        "Operations a second: medians over the rounds, in brackets (highest - lowest) / median.",
        "Ratio: median of the ratios within a round (lowest to highest).",
        "",
    ]
    table = [["work", "against", "conns x batch", "fencekv", "", "peer", "", "ratio", "", "target",
              "", "rounds"]]
    for row in rows:
        table.append([
            f"{row['work']}, {row['variant'].split('-')[1]}",
            row["peer"],
            f"{row['connections']} x {row['pipeline']}",
            thousands(row["ours"]["ops_per_second"]),
            f"({row['ours']['spread']:.0%})",
            thousands(row["theirs"]["ops_per_second"]),
            f"({row['theirs']['spread']:.0%})",
            f"{row['ratio']:.2f}",
            f"({min(row['ratios']):.2f} to {max(row['ratios']):.2f})",
            "" if row["target"] is None else f"{row['target']:.1f}",
            verdict(row),
            str(row["rounds"]),
        ])
    lines += aligned(table)
    lines += [
        "",
        "Medians of latency in microseconds, of processor time in microseconds an operation, of how",
        "busy server and client were (of one processor), and of bytes written an operation.",
        "",
    ]
    table = [["work", "server", "conns x batch", "p50", "p99", "p99.9", "max", "server cpu",
              "client cpu", "server busy", "client busy", "written"]]
    shown = set()
    for row in rows:
        # What is measured once may be compared with twice.
        peer_work = {"FENCE.GET": "GET", "stale write": "fenced write"}.get(row["work"], row["work"])
        for work, name, side in ((row["work"], row["variant"], row["ours"]),
                                 (peer_work, row["peer"], row["theirs"])):
            key = (work, name, row["connections"], row["pipeline"])
            if key in shown:
                continue
            shown.add(key)
            latency = side["latency_us"]
            table.append([
                work, name, f"{row['connections']} x {row['pipeline']}", f"{latency['p50']:.0f}",
                f"{latency['p99']:.0f}", f"{latency['p99.9']:.0f}", f"{latency['max']:.0f}",
                f"{side['server_cpu_us_an_operation']:.1f}",
                f"{side['client_cpu_us_an_operation']:.1f}", f"{side['server_cpu_share']:.0%}",
                f"{side['client_cpu_share']:.0%}", f"{side['written_bytes_an_operation']:.0f}"
            ])
    lines += aligned(table)
    return "\n".join(lines) + "\n"


def to_svg(about, rows):
    """Two bars a row, with a line from the lowest to the highest round, and the ratio beside them."""
    left, width, bar, gap, top = 330, 420, 13, 14, 64
    height = top + len(rows) * (2 * bar + gap) + 30
    # A row has a scale of its own: from leases to pipelined reads it is a factor of fifty.
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 250}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" font-weight="bold">Operations a second: '
        f'{html.escape(title(about, rows))}</text>',
        f'<text x="16" y="44" fill="#555555">{html.escape(about["date"])}, '
        f'{html.escape(about["processor"])}, {about["processors"]} processors. Medians; the line is '
        'from the lowest to the highest round. Each row has a scale of its own.</text>',
    ]
    for i, row in enumerate(rows):
        y = top + i * (2 * bar + gap)
        sides = ((row["ours"], row["variant"], "#2b6cb0"), (row["theirs"], row["peer"], "#a0aec0"))
        scale = width / max(max(side["highest"] for side, _, _ in sides), 1e-9)
        parts.append(f'<text x="16" y="{y + bar + 4}">{html.escape(row["work"])}, '
                     f'{row["connections"]} x {row["pipeline"]}</text>')
        for j, (side, name, color) in enumerate(sides):
            at = y + j * bar
            length = side["ops_per_second"] * scale
            middle = at + bar / 2 - 0.5
            parts.append(f'<text x="{left - 8}" y="{at + bar - 3}" text-anchor="end" font-size="10" '
                         f'fill="#555555">{html.escape(name)}</text>')
            parts.append(f'<rect x="{left}" y="{at}" width="{length:.1f}" height="{bar - 1}" '
                         f'fill="{color}"/>')
            parts.append(f'<line x1="{left + side["lowest"] * scale:.1f}" y1="{middle}" '
                         f'x2="{left + side["highest"] * scale:.1f}" y2="{middle}" '
                         'stroke="#1a202c"/>')
            parts.append(f'<text x="{left + width + 8}" y="{at + bar - 3}" font-size="10">'
                         f'{thousands(side["ops_per_second"])}</text>')
        color = {True: "#2f855a", False: "#c53030", None: "#1a202c"}[row["is_met"]]
        target = "" if row["target"] is None else f' (target {row["target"]:.1f})'
        parts.append(f'<text x="{left + width + 64}" y="{y + bar + 4}" fill="{color}">'
                     f'<tspan font-weight="bold">{row["ratio"]:.2f}x</tspan>{target}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def write(results, about, name, text, everything, svg=None, shown=None):
    """Prints the text, or only what of it is to be shown, and leaves it, the JSON and the plot in files of
    the same name."""
    results.mkdir(parents=True, exist_ok=True)
    stamp = about["date"].replace(":", "").replace("-", "")
    base = f"{stamp}-{about['commit']}{name}"
    files = {".txt": text, ".json": json.dumps(everything, indent=1) + "\n", ".svg": svg}
    for suffix, content in files.items():
        if content is not None:
            (results / (base + suffix)).write_text(content, encoding="utf-8")
    print(text if shown is None else shown, end="")
    written = ", ".join(suffix for suffix, content in files.items() if content is not None)
    print(f"\nwritten: {results / base}{written}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", help="what compare.sh collected, a run a line")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="where the files go")
    parser.add_argument("--keys", type=int, default=0)
    parser.add_argument("--value-bytes", type=int, default=0)
    parser.add_argument("--seconds", default="unknown")
    parser.add_argument("--directory", default=".", help="where the stores were")
    parser.add_argument("--command", default="tools/bench/compare.sh", help="what was run")
    arguments = parser.parse_args()

    about = describe(arguments.command, arguments.directory) | versions() | {
        "keys": arguments.keys,
        "value_bytes": arguments.value_bytes,
        "seconds_a_run": arguments.seconds,
    }
    runs = read_runs(arguments.runs)
    rows = compare(runs)
    if not rows:
        print("report.py: there is no round with both sides of a row", file=sys.stderr)
        return 1

    text = to_text(about, rows)
    everything = {
        "about": about,
        "rows": rows,
        "runs": [{
            "variant": variant,
            "workload": workload,
            "connections": connections,
            "pipeline": pipeline,
            "round": number,
            "load": load
        } for (variant, workload, connections, pipeline), loads in sorted(runs.items())
                 for number, load in sorted(loads.items())],
    }
    write(arguments.results, about, "", text, everything, to_svg(about, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
