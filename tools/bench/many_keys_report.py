#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runs of tools/bench/many_keys.sh as a table and as JSON.

    tools/bench/many_keys_report.py RUNS.jsonl --results DIRECTORY [--command ...]

A line of RUNS.jsonl is one run: round (0: the filling), keys, workload, connections, pipeline,
resident_kib of the server, and under `load` what fencekv_bench_load printed. Ratios are formed within a
round, against the store with the fewest keys, and the median of them is shown.
"""

import argparse
import json
import pathlib
import statistics
import sys

import report


def read_runs(path):
    """The lines of filling by keys, and {(workload, connections, pipeline): {keys: {round: load}}}."""
    fills, resident, shapes = {}, {}, {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            resident[run["keys"]] = run["resident_kib"]
            if run["round"] == 0:
                fills[run["keys"]] = run["load"]
                continue
            shape = (run["workload"], run["connections"], run["pipeline"])
            shapes.setdefault(shape, {}).setdefault(run["keys"], {})[run["round"]] = run["load"]
    return fills, resident, shapes


def compare(shapes):
    rows = []
    for (workload, connections, pipeline), by_keys in shapes.items():
        fewest = by_keys[min(by_keys)]
        for keys, loads in sorted(by_keys.items()):
            ratios = [loads[i]["ops_per_second"] / max(fewest[i]["ops_per_second"], 1e-9)
                      for i in sorted(loads.keys() & fewest.keys())]
            rows.append({
                "work": workload,
                "connections": connections,
                "pipeline": pipeline,
                "keys": keys,
                "rounds": len(ratios),
                "ratio": statistics.median(ratios),
                "ratios": ratios,
                **report.summary(list(loads.values())),
            })
    return rows


def to_text(about, fills, resident, rows):
    lines = [
        f"fencekv {about['commit']}: the same load on more and more keys, {about['date']}",
        f"{about['processor']}, {about['processors']} processors, kernel {about['kernel']}, "
        f"{about['file_system'] or 'unknown file system'}",
        f"keys of 16 bytes, values of {about['value_bytes']} bytes, --durability "
        f"{about['durability']}, --memory-budget {about['memory_budget'] / 1024 ** 2:.0f} MiB, "
        f"{about['seconds_a_run']} s a run",
        f"command: {about['command']}",
        "",
    ]
    table = [["keys", "", "filled at", "server's memory"]]
    for keys, load in sorted(fills.items()):
        table.append([f"{keys}", "", report.thousands(load["ops_per_second"]) + "/s",
                      f"{resident[keys] / 1024:.0f} MiB"])
    lines += report.aligned(table)
    lines += ["", "Operations a second and latency in microseconds: medians over the rounds. Ratio:",
              "median of the ratios within a round to the fewest keys (lowest to highest).", ""]
    table = [["work", "conns x batch", "keys", "ops/s", "ratio", "", "p50", "p99", "p99.9", "max",
              "server cpu", "rounds"]]
    for row in rows:
        latency = row["latency_us"]
        table.append([
            row["work"], f"{row['connections']} x {row['pipeline']}", str(row["keys"]),
            report.thousands(row["ops_per_second"]), f"{row['ratio']:.2f}",
            f"({min(row['ratios']):.2f} to {max(row['ratios']):.2f})", f"{latency['p50']:.0f}",
            f"{latency['p99']:.0f}", f"{latency['p99.9']:.0f}", f"{latency['max']:.0f}",
            f"{row['server_cpu_us_an_operation']:.1f}", str(row["rounds"])
        ])
    lines += report.aligned(table)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", help="what many_keys.sh collected, a run a line")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="where the files go")
    parser.add_argument("--value-bytes", type=int, default=0)
    parser.add_argument("--seconds", default="unknown")
    parser.add_argument("--memory-budget", type=int, default=0, help="in bytes")
    parser.add_argument("--durability", default="process")
    parser.add_argument("--directory", default=".", help="where the stores are")
    parser.add_argument("--command", default="tools/bench/many_keys.sh", help="what was run")
    arguments = parser.parse_args()

    fills, resident, shapes = read_runs(arguments.runs)
    if not shapes:
        print("many_keys_report.py: there is no run", file=sys.stderr)
        return 1
    about = report.describe(arguments.command, arguments.directory) | {
        "value_bytes": arguments.value_bytes,
        "seconds_a_run": arguments.seconds,
        "memory_budget": arguments.memory_budget,
        "durability": arguments.durability,
    }
    rows = compare(shapes)
    text = to_text(about, fills, resident, rows)
    everything = {"about": about, "fills": fills, "resident_kib": resident, "rows": rows}
    report.write(arguments.results, about, "-many-keys", text, everything)
    return 0


if __name__ == "__main__":
    sys.exit(main())
