#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The embedded store against raw RocksDB, pair by pair, as a table and as JSON.

    compare_sides.py PROGRAM [--results DIR] [--rows EXPRESSION] [--repetitions N] [--seconds S] ...

Each row is a process of its own in which Google Benchmark repeats both sides in random order, so that
the machine's good and bad minutes meet both. The ratio is the median of the ratios of repetitions, the
first with the first and so on; its range says how much of it is noise.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

# What is compared with what, and at least how much faster it has to be.
Row = collections.namedtuple("Row", "label ours peer target")
ROWS = [
    Row("write, 1 thread, process", "store/write/process/1", "raw/put/process/1", 0.85),
    Row("write, 64 threads, process", "store/write/process/64", "raw/put/process/64", None),
    Row("write, 1 thread, sync", "store/write/sync/1", "raw/put/sync/1", None),
    Row("write, 64 threads, sync", "store/write/sync/64", "raw/put/sync/64", 1.3),
    Row("write of 1 key, process", "store/write-many/1", "raw/batch/1", None),
    Row("write of 10 keys, process", "store/write-many/10", "raw/batch/10", None),
    Row("write of 100 keys, process", "store/write-many/100", "raw/batch/100", None),
    Row("write of a new key, process", "store/write-new", "raw/put-new", None),
    Row("write, fence not in memory, process", "store/write-forgotten", "raw/get-and-put", None),
    Row("read", "store/get", "raw/get", None),
    Row("stale write, process", "store/stale", "store/write/process/1", 2.0),
]


def measure(row, options):
    """Keys a second of (ours, peer), a figure a repetition."""
    names = [name + "/real_time" for name in (row.ours, row.peer)]
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="embedded.") as directory:
        done = subprocess.run(
            [options.program, directory, str(options.keys), f"--benchmark_filter=^({'|'.join(names)})(/|$)",
             "--benchmark_enable_random_interleaving=true",
             f"--benchmark_repetitions={options.repetitions}",
             f"--benchmark_min_time={options.seconds}", "--benchmark_format=json"],
            capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{row.label}: exit code {done.returncode}: {done.stderr}")
    rates = collections.defaultdict(dict)
    for run in json.loads(done.stdout)["benchmarks"]:
        if run["run_type"] != "iteration":
            continue
        if run.get("error_occurred"):
            raise RuntimeError(f"{run['name']}: {run['error_message']}")
        side = run["name"].split("/real_time")[0]
        rates[side][run["repetition_index"]] = run["items_per_second"]
    sides = tuple([rates[name][i] for i in sorted(rates[name])] for name in (row.ours, row.peer))
    if any(len(side) != options.repetitions for side in sides):
        raise RuntimeError(f"{row.label}: a side was not measured: {done.stderr}")
    return sides


def compare(row, ours, peer):
    ratios = [mine / theirs for mine, theirs in zip(ours, peer)]
    ratio = statistics.median(ratios)
    return {
        "work": row.label,
        "ours": row.ours,
        "peer": row.peer,
        "keys_per_second": statistics.median(ours),
        "peer_keys_per_second": statistics.median(peer),
        "ratio": ratio,
        "ratios": ratios,
        "target": row.target,
        "is_met": None if row.target is None else ratio >= row.target,
    }


def aligned(table):
    widths = [max(map(len, column)) for column in zip(*table)]
    return [
        "  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in table
    ]


def to_text(about, rows):
    table = [["work", "against", "fencekv", "peer", "ratio", "", "target", ""]]
    for row in rows:
        verdict = {None: "", True: "met", False: "NOT MET"}[row["is_met"]]
        table.append([
            row["work"], row["peer"], f"{row['keys_per_second'] / 1000:.1f} k",
            f"{row['peer_keys_per_second'] / 1000:.1f} k", f"{row['ratio']:.2f}",
            f"({min(row['ratios']):.2f} to {max(row['ratios']):.2f})",
            "" if row["target"] is None else f"{row['target']:.2f}", verdict
        ])
    return "\n".join([
        f"fencekv {about['commit']} against raw RocksDB with the same database options, {about['date']}",
        f"{about['processor']}, {about['processors']} processors, kernel {about['kernel']}, "
        f"{about['file_system']}",
        f"{about['keys']} keys of 16 bytes, values of 100 bytes, {about['repetitions']} repetitions of "
        f"{about['seconds']} s a side in random order",
        "Keys a second: medians. Ratio: median of the ratios of repetitions (lowest to highest).", "",
        *aligned(table)
    ]) + "\n"


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(options):
    """Where and of what the figures are."""
    commit = output_of("git", "rev-parse", "--short=10", "HEAD") or "unknown"
    if output_of("git", "status", "--porcelain", "--untracked-files=no"):
        commit += "-changed"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "processor": processor(),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "file_system": output_of("stat", "-f", "-c", "%T", options.directory or tempfile.gettempdir()),
        "keys": options.keys,
        "repetitions": options.repetitions,
        "seconds": options.seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="fencekv_bench_embedded")
    parser.add_argument("--results", type=pathlib.Path, help="where table and JSON go, too")
    parser.add_argument("--rows", default=".", help="only those whose label matches")
    parser.add_argument("--keys", type=int, default=100_000, help="in each side beforehand")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a repetition, at least")
    parser.add_argument("--directory", help="where stores and databases are made")
    options = parser.parse_args()

    about = describe(options)
    rows = []
    for row in ROWS:
        if not re.search(options.rows, row.label):
            continue
        print(f"== {row.label}", file=sys.stderr)
        try:
            rows.append(compare(row, *measure(row, options)))
        except (OSError, RuntimeError, json.JSONDecodeError) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    if not rows:
        print(f"no row matches {options.rows}", file=sys.stderr)
        return 2

    text = to_text(about, rows)
    print(text, end="")
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        stamp = about["date"].replace(":", "").replace("-", "")
        base = options.results / f"{stamp}-{about['commit']}-embedded"
        base.with_suffix(".txt").write_text(text, encoding="utf-8")
        base.with_suffix(".json").write_text(
            json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        print(f"\nwritten: {base}.txt, .json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
