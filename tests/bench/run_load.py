# SPDX-License-Identifier: Apache-2.0
"""run_load.py SERVER LOAD: the load generator's workloads, small, against a server of their own.

Each must end without an error and say how many operations it did; and one whose replies are not what it
expects must fail, or the figures of a comparison could be those of error replies.
"""

import json
import os
import subprocess
import sys
import tempfile

OPERATIONS = 300


def load(program, port, workload, *more):
    done = subprocess.run(
        [program, "--target", "fencekv", "--workload", workload, "--port", port, "--keys", "100",
         "--connections", "5", "--pipeline", "4", "--operations", str(OPERATIONS), *more],
        capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def check_disk(program, directory):
    file = os.path.join(directory, "log")
    command = [program, "--target", "disk", "--workload", "write", "--connections", "1", "--value-bytes", "200",
               "--operations", "20", "--file", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["operations"] == 20 and report["latency_us"]["p50"] > 0, report
    assert os.path.getsize(file) == 20 * 200, "each write is there"

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["errors"] == 1, "no file is written over"
    done = subprocess.run([*command, "--pipeline", "2"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "one write after the other" in done.stderr, done.stderr


def check_windows(program, port):
    done = subprocess.run(
        [program, "--target", "fencekv", "--workload", "write", "--port", port, "--keys", "100", "--connections",
         "5", "--seconds", "1.5", "--window", "0.25"], capture_output=True, text=True, timeout=60, check=True)
    *windows, report = [json.loads(line) for line in done.stdout.splitlines()]
    begins = [said["window"]["begin_seconds"] for said in windows]
    assert len(begins) >= 3 and begins == [0.25 * i for i in range(len(begins))], begins
    counts = [said["window"]["operations"] for said in windows]
    assert 0 < sum(counts) <= report["operations"], (counts, report)


def check(server, program):
    with tempfile.TemporaryDirectory() as directory, subprocess.Popen(
            [server, "--dir", f"{directory}/store", "--port", "0"], stdout=subprocess.PIPE, text=True) as running:
        try:
            port = running.stdout.readline().strip().rpartition(":")[2]
            code, report, _ = load(program, port, "get")
            assert code == 1 and report["errors"] > 0, f"missing keys are errors: {report}"

            code, report, said = load(program, port, "write", "--distribution", "once")
            assert code == 0, said
            for workload in ("write", "stale", "get", "fenced-get", "lease"):
                code, report, said = load(program, port, workload)
                assert code == 0 and report["errors"] == 0, f"{workload}: {said}"
                assert report["operations"] >= OPERATIONS, f"{workload}: {report}"
                assert report["latency_us"]["p50"] > 0, f"{workload}: {report}"

            code, report, said = load(program, port, "write", "--rate", "2000", "--distribution", "zipfian")
            assert code == 0 and report["loop"] == "open", said
            check_windows(program, port)
            check_disk(program, directory)
        finally:
            running.terminate()
        assert running.wait(30) == 0, "the server ends well"


check(*sys.argv[1:])
