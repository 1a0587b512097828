# SPDX-License-Identifier: Apache-2.0
"""run_scripts.py SERVER LOAD SOURCE: compare.sh, many_keys.sh and long.sh of tools/bench, very small.

They must end well and leave what they promise, with figures that add up. What the figures are does not
matter; without a peer there is still the disk to compare with.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree


def run(source, directory, script, *arguments, **settings):
    """What it left: text, JSON and the plot, or None for what is not there."""
    results = pathlib.Path(directory) / script.split(".")[0]
    environment = os.environ | {"RESULTS": str(results), "BENCH_DIR": directory} | settings
    done = subprocess.run([f"{source}/tools/bench/{script}", *arguments], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"
    files = {path.suffix: path.read_text() for path in results.iterdir()}
    assert "written: " in done.stdout
    if ".svg" in files:
        xml.etree.ElementTree.fromstring(files[".svg"])
    left = list(pathlib.Path(directory).glob("*.*/"))
    assert not left, f"{script} left {left}"
    return files[".txt"], json.loads(files[".json"]), files.get(".svg")


def check_compare(source, directory, programs):
    text, figures, plot = run(source, directory, "compare.sh", PEERS="disk", ROUNDS="1", SECONDS="0.5",
                              ROWS="write 1x1 ", KEYS="1000", **programs)
    row, = figures["rows"]
    assert (row["variant"], row["peer"], row["target"]) == ("fencekv-sync", "disk-sync", 0.9), row
    ours, theirs = row["ours"]["ops_per_second"], row["theirs"]["ops_per_second"]
    assert ours > 0 and theirs > 0 and abs(row["ratio"] - ours / theirs) < 1e-6, row
    assert row["is_met"] == (row["ratio"] >= 0.9)
    assert "disk-sync" in text and "disk-sync" in plot
    assert "against the disk" in text


def check_many_keys(source, directory, programs):
    text, figures, _ = run(source, directory, "many_keys.sh", KEYS="500 1000", ROUNDS="2", SECONDS="0.3",
                           **programs)
    assert {row["keys"] for row in figures["rows"]} == {500, 1000}
    assert len(figures["rows"]) == 8, "two works, two shapes, two stores"
    for row in figures["rows"]:
        assert row["rounds"] == 2 and row["ops_per_second"] > 0, row
        assert row["keys"] != 500 or row["ratio"] == 1, row
    assert figures["fills"]["1000"]["operations"] == 1000
    assert "--memory-budget 64 MiB" in text


def check_long(source, directory, programs):
    text, figures, plot = run(source, directory, "long.sh", "0.1", KEYS="2000", WINDOW="1", **programs)
    windows, summary, load = figures["windows"], figures["summary"], figures["load"]
    assert len(windows) >= 4, "a window a second, and the last may be cut"
    assert [w["begin_seconds"] for w in windows] == list(range(len(windows)))
    assert 0 < sum(w["operations"] for w in windows) <= load["operations"]
    third = len(windows) // 3
    expected = (sum(w["operations"] for w in windows[-third:]) /
                max(sum(w["operations"] for w in windows[:third]), 1e-9))
    assert abs(summary["flatness"]["ops_per_second"] - expected) < 1e-6, summary
    # A record in the log is longer than its key and value.
    assert summary["write_amplification"] > 1, summary
    assert summary["space_amplification"] > 0 and summary["live_bytes"] == 2000 * 116, summary
    assert "flatness" in text and "space amplification" in text and "p99.9" in plot


def main(server, load, source):
    programs = {"SERVER": server, "LOAD": load}
    with tempfile.TemporaryDirectory() as directory:
        check_compare(source, directory, programs)
        check_many_keys(source, directory, programs)
        check_long(source, directory, programs)


main(*sys.argv[1:])
