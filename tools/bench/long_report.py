#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Watches a run of tools/bench/long.sh, whose load comes by standard input, and reports on it.

    fencekv_bench_load --window 10 ... | tools/bench/long_report.py --store DIRECTORY --server-pid N ...

A line of the input is a window as it ends, or what came of the whole run. A line is printed for each
window, and in the end how flat the run was: its last third against its first.

Write amplification is the bytes that the server gave to write(), for its log, flushes and compactions,
for each byte of key and value that the load wrote. What the kernel sends to the disk for that is more,
in whole pages for each sync; `write_bytes` of /proc counts it by the folios that were made dirty, which
is too much where a file is written over, and is shown beside it. Space amplification is what the store
occupies, for each byte of key and value that is alive: every key is.
"""

import argparse
import html
import json
import math
import os
import pathlib
import statistics
import sys

import report

KEY_BYTES = 16


def input_and_output(process):
    lines = pathlib.Path(f"/proc/{process}/io").read_text(encoding="utf-8").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def occupied_bytes(directory):
    """As du has it. A compaction may delete a file while this looks."""
    total = 0
    for path in pathlib.Path(directory).rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def tables_of(directory):
    return {path.name for path in pathlib.Path(directory).rglob("*.sst")}


class Watch:
    """What the server did beside answering, from one window to the next."""

    def __init__(self, store, process):
        self.store, self.process = store, process
        self.tables = tables_of(store)
        self.written = input_and_output(process)

    def look(self):
        tables, written = tables_of(self.store), input_and_output(self.process)
        seen = {
            # A flush makes tables, and only a compaction removes some.
            "tables_made": len(tables - self.tables),
            "tables_removed": len(self.tables - tables),
            "written_bytes": written["wchar"] - self.written["wchar"],
            "dirtied_bytes": written["write_bytes"] - self.written["write_bytes"],
            "store_bytes": occupied_bytes(self.store),
        }
        self.tables, self.written = tables, written
        return seen


HEADER = f"{'at s':>7} {'ops/s':>9} {'p50':>8} {'p99':>9} {'p99.9':>9} {'max':>9} " \
         f"{'MB/s written':>13} {'tables':>9} {'store MB':>9}"


def line_of(window):
    latency = window["latency_us"]
    return (f"{window['begin_seconds']:7.0f} {window['operations'] / window['seconds']:9.0f} "
            f"{latency['p50']:8.0f} {latency['p99']:9.0f} {latency['p99.9']:9.0f} "
            f"{latency['max']:9.0f} {window['written_bytes'] / window['seconds'] / 1e6:13.1f} "
            f"{'+%d -%d' % (window['tables_made'], window['tables_removed']):>9} "
            f"{window['store_bytes'] / 1e6:9.0f}")


def flatness(windows):
    """The last third of the windows against the first; nothing if there are not three."""
    third = len(windows) // 3
    if third == 0:
        return None
    first, last = windows[:third], windows[-third:]

    def change(value):
        return (statistics.mean(value(w) for w in last) /
                max(statistics.mean(value(w) for w in first), 1e-9))

    return {
        "windows_a_third": third,
        "ops_per_second": change(lambda w: w["operations"] / w["seconds"]),
        **{name: change(lambda w, name=name: w["latency_us"][name])
           for name in ("p50", "p99", "p99.9", "max")},
    }


def summarize(load, windows):
    rates = [window["operations"] / window["seconds"] for window in windows]
    pair_bytes = KEY_BYTES + load["value_bytes"]
    # Reads write nothing.
    user_bytes = load["operations"] * (1 - load["read_share"]) * pair_bytes
    live_bytes = load["keys"] * pair_bytes
    seconds = sum(window["seconds"] for window in windows)
    user_bytes_of_windows = sum(w["operations"] for w in windows) * (1 - load["read_share"]) * pair_bytes
    return {
        "ops_per_second": load["ops_per_second"],
        "latency_us": load["latency_us"],
        "slowest_window": min(rates),
        "fastest_window": max(rates),
        "window_p99_us": {"median": statistics.median(w["latency_us"]["p99"] for w in windows),
                          "highest": max(w["latency_us"]["p99"] for w in windows)},
        "flatness": flatness(windows),
        "user_bytes": user_bytes,
        "write_amplification": load["server_written_bytes"] / max(user_bytes, 1),
        "dirtied_amplification":
            sum(w["dirtied_bytes"] for w in windows) / max(user_bytes_of_windows, 1),
        "live_bytes": live_bytes,
        "space_amplification": windows[-1]["store_bytes"] / live_bytes,
        "highest_space_amplification": max(w["store_bytes"] for w in windows) / live_bytes,
        "tables_made": sum(w["tables_made"] for w in windows),
        "tables_removed": sum(w["tables_removed"] for w in windows),
        "server_cpu_share": load["server_cpu_seconds"] / max(load["seconds"], 1e-9),
        "client_cpu_share": load["client_cpu_seconds"] / max(load["seconds"], 1e-9),
        "seconds": seconds,
    }


def to_text(about, load, summary):
    latency = summary["latency_us"]
    lines = [
        f"fencekv {about['commit']}: {summary['seconds']:.0f} s of writes, {about['date']}",
        f"{about['processor']}, {about['processors']} processors, kernel {about['kernel']}, "
        f"{about['file_system'] or 'unknown file system'}",
        f"{load['keys']} keys of {KEY_BYTES} bytes, values of {load['value_bytes']} bytes, "
        f"{load['connections']} x {load['pipeline']}, {load['loop']} loop",
        f"command: {about['command']}",
        "",
        f"throughput            {summary['ops_per_second']:.0f} operations/s; windows from "
        f"{summary['slowest_window']:.0f} to {summary['fastest_window']:.0f}",
        f"latency, us           p50 {latency['p50']:.0f}, p99 {latency['p99']:.0f}, "
        f"p99.9 {latency['p99.9']:.0f}, max {latency['max']:.0f}; p99 of a window: median "
        f"{summary['window_p99_us']['median']:.0f}, highest {summary['window_p99_us']['highest']:.0f}",
    ]
    flat = summary["flatness"]
    if flat is None:
        lines.append("flatness              too short for thirds")
    else:
        lines.append(
            f"flatness              last third / first third: throughput {flat['ops_per_second']:.2f}, "
            f"p50 {flat['p50']:.2f}, p99 {flat['p99']:.2f}, p99.9 {flat['p99.9']:.2f}, "
            f"max {flat['max']:.2f}")
    lines += [
        f"write amplification   {summary['write_amplification']:.2f} (bytes given to write() for a "
        f"byte of user data); {summary['dirtied_amplification']:.2f} by the pages made dirty",
        f"space amplification   {summary['space_amplification']:.2f} in the end, "
        f"{summary['highest_space_amplification']:.2f} at most "
        f"({summary['live_bytes'] / 1e6:.0f} MB alive)",
        f"background            {summary['tables_made']} tables made, {summary['tables_removed']} "
        "removed by compaction, as seen at the end of each window",
        f"busy, of a processor  server {summary['server_cpu_share']:.0%}, "
        f"client {summary['client_cpu_share']:.0%}",
    ]
    if load["unsent"] > 0:
        lines.append(f"behind                {load['unsent']} requests were due and not sent: the rate "
                     "is more than the server takes")
    return "\n".join(lines) + "\n"


def to_svg(about, windows):
    """Throughput above, percentiles of latency below (logarithmic), over time."""
    left, width, panel, gap, top = 70, 820, 200, 50, 80
    end = max(w["begin_seconds"] + w["seconds"] for w in windows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" '
        f'height="{top + 2 * panel + gap + 50}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" font-weight="bold">fencekv '
        f'{html.escape(about["commit"])}: a long run of writes</text>',
        f'<text x="16" y="44" fill="#555555">{html.escape(about["date"])}, '
        f'{html.escape(about["processor"])}, {about["processors"]} processors. '
        f'{windows[0]["seconds"]:g} s a point.</text>',
    ]

    def curve(values, y_of, color, name):
        points = [(left + (w["begin_seconds"] + w["seconds"] / 2) / end * width, y_of(value))
                  for w, value in zip(windows, values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(f'<text x="{points[-1][0] + 6:.1f}" y="{points[-1][1] + 4:.1f}" font-size="10" '
                     f'fill="{color}">{name}</text>')

    def frame(y, title):
        parts.append(f'<text x="{left}" y="{y - 6}" fill="#555555">{title}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{width}" height="{panel}" fill="none" '
                     'stroke="#cbd5e0"/>')

    def mark(y, text):
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" '
                     'stroke="#edf2f7"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="10">'
                     f'{text}</text>')

    rates = [w["operations"] / w["seconds"] for w in windows]
    highest = max(max(rates), 1)
    frame(top, "operations a second")
    for share in (0, 0.5, 1):
        mark(top + panel * (1 - share), report.thousands(highest * share))
    curve(rates, lambda value: top + panel * (1 - value / highest), "#2b6cb0", "")

    second = top + panel + gap
    latencies = {name: [max(w["latency_us"][name], 1) for w in windows]
                 for name in ("p50", "p99", "p99.9", "max")}
    low = math.floor(math.log10(min(latencies["p50"])))
    high = max(math.ceil(math.log10(max(latencies["max"]))), low + 1)
    frame(second, "latency in microseconds")
    for decade in range(low, high + 1):
        mark(second + panel * (1 - (decade - low) / (high - low)), str(10 ** decade))
    for (name, values), color in zip(latencies.items(), ("#2f855a", "#2b6cb0", "#b7791f", "#c53030")):
        curve(values, lambda value: second + panel * (1 - (math.log10(value) - low) / (high - low)),
              color, name)
    parts.append(f'<text x="{left + width}" y="{second + panel + 18}" text-anchor="end" '
                 f'fill="#555555">{end:.0f} s</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True, help="the directory of the server")
    parser.add_argument("--server-pid", type=int, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True, help="where the files go")
    parser.add_argument("--command", default="tools/bench/long.sh", help="what was run")
    arguments = parser.parse_args()

    watch = Watch(arguments.store, arguments.server_pid)
    windows, load = [], None
    for line in sys.stdin:
        said = json.loads(line)
        if "window" not in said:
            load = said
            continue
        if not windows:
            print(HEADER)
        windows.append(said["window"] | watch.look())
        print(line_of(windows[-1]), flush=True)
    if load is None or load["errors"] > 0 or not windows:
        why = "nothing came" if load is None else load.get("first_error", "there was no whole window")
        print(f"long_report.py: {why}", file=sys.stderr)
        return 1

    print()
    about = report.describe(arguments.command, os.fspath(arguments.store))
    summary = summarize(load, windows)
    everything = {"about": about, "load": load, "summary": summary, "windows": windows}
    text = to_text(about, load, summary)
    table = "\n".join(["", HEADER, *(line_of(window) for window in windows)]) + "\n"
    report.write(arguments.results, about, "-long", text + table, everything,
                 to_svg(about, windows), shown=text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
