#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""redis-benchmark connects and runs: its own tests of reads, and fenced writes as a custom command.

    redis_benchmark.py FENCEKV-SERVER
"""

import re
import shutil
import subprocess
import sys

from live_server import live_server, skip


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    print("$ " + " ".join(command))
    print(done.stdout + done.stderr)
    return done


def main():
    if not shutil.which("redis-benchmark") or not shutil.which("redis-cli"):
        skip("redis-benchmark and redis-cli are not installed (Debian: redis-tools)")
    with live_server(sys.argv[1]) as (host, port, _):
        where = ("-h", host, "-p", str(port))
        wrong = []

        def check(what, ok):
            print(f"{'ok   ' if ok else 'WRONG'} {what}")
            if not ok:
                wrong.append(what)

        done = run("redis-benchmark", *where, "-t", "ping,get", "-n", "4000", "-c", "20", "-P", "4", "--csv")
        tests = re.findall(r'^"([A-Z_]+)","(\d+(?:\.\d+)?)"', done.stdout, re.MULTILINE)
        check("ping and get ran", done.returncode == 0 and
              [t for t, _ in tests] == ["PING_INLINE", "PING_MBULK", "GET"])
        check("each with a speed", bool(tests) and all(float(rate) > 0 for _, rate in tests))
        check("without a warning", "WARNING" not in done.stderr + done.stdout)

        granted = run("redis-cli", *where, "LEASE.ACQUIRE", "bench", "owner", "60000").stdout.split()
        token = granted[0] if granted else "none"
        done = run("redis-benchmark", *where, "-n", "1000", "-c", "20", "-r", "100", "--csv",
                   "FENCE.SET", "bench:__rand_int__", token, "value", "LEASE", "bench")
        check("fenced writes ran", done.returncode == 0 and "FENCE.SET" in done.stdout)
        keys = int(run("redis-cli", *where, "DBSIZE").stdout)
        check("and wrote", 1 <= keys <= 100)

        # The control: with a token that nobody handed out the same run must be refused.
        done = run("redis-benchmark", *where, "-n", "10", "-c", "1", "--csv",
                   "FENCE.SET", "bench:refused", str(int(token) + 1000), "value", "LEASE", "bench")
        check("a run with a wrong token is refused", "UNISSUED" in done.stdout + done.stderr)
        check("and writes nothing", run("redis-cli", *where, "EXISTS", "bench:refused").stdout == "0\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
