# SPDX-License-Identifier: Apache-2.0
"""run_peers.py redis|postgres|etcd LOAD: the load generator's workloads, small, against that peer.

Each must end without an error and say how many operations it did, and one whose replies are not what it
expects must fail: a peer whose refusals counted as writes would look fast. Ends with 77, which is a skip,
if the peer is not installed or the load generator was built without it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

OPERATIONS = 200
KEYS = 100


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def redis_command(directory):
    port, = free_ports(1)
    return port, ["redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", directory, "--save", "",
                  "--appendonly", "yes"], "Ready to accept connections"


def etcd_command(directory):
    port, peer_port = free_ports(2)
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return port, ["etcd", "--data-dir", f"{directory}/etcd", "--logger=zap", "--log-outputs=stderr",
                  "--listen-client-urls", client, "--advertise-client-urls", client,
                  "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                  "--initial-cluster", f"default={peer}"], "serving client traffic"


def postgres_command(directory):
    port, = free_ports(1)
    programs = postgres_programs()
    os.environ |= {"PGUSER": "bench", "PGDATABASE": "postgres"}
    as_user = []
    if os.geteuid() == 0:  # which it refuses to run as
        as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"]
        os.chmod(directory, 0o755)
        os.mkdir(f"{directory}/store")
        shutil.chown(f"{directory}/store", "postgres")
    subprocess.run([*as_user, programs / "initdb", "-D", f"{directory}/store", "-A", "trust", "-U", "bench",
                    "-E", "UTF8", "--no-locale"], stdout=subprocess.DEVNULL, timeout=100, check=True)
    return port, [*as_user, programs / "postgres", "-D", f"{directory}/store", "-p", port, "-h", "127.0.0.1",
                  "-k", "", "-c", "fsync=off"], "ready to accept connections"


def postgres_programs():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


COMMANDS = {"redis": redis_command, "etcd": etcd_command, "postgres": postgres_command}


@contextlib.contextmanager
def running(peer):
    """The port of a server of its own."""
    # Somewhere else than a TMPDIR that only one user may enter, for PostgreSQL has another.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        port, command, greeting = COMMANDS[peer](directory)
        log = pathlib.Path(directory) / "log"
        with log.open("w") as out, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                                    stderr=subprocess.STDOUT) as server:
            try:
                last = time.monotonic() + 60
                while greeting not in log.read_text(errors="replace"):
                    assert server.poll() is None and time.monotonic() < last, log.read_text(errors="replace")
                    time.sleep(0.05)
                yield port
            finally:
                # PostgreSQL's SIGTERM waits for its clients; they are gone.
                server.terminate()


def load(program, peer, port, workload, *more):
    pipeline = [] if "--pipeline" in more else ["--pipeline", "4"]
    done = subprocess.run(
        [program, "--target", peer, "--workload", workload, "--port", port, "--keys", str(KEYS),
         "--connections", "5", *pipeline, "--operations", str(OPERATIONS), *more],
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


# Everything that the generator can do with a peer, after every key was written once.
RUNS = {
    "redis": [("write",), ("stale",), ("write", "--read-share", "0.5"), ("fenced-get",), ("lease",)],
    "postgres": [("write",), ("write", "--one-transaction"), ("write", "--read-share", "0.5"), ("get",),
                 ("lease",), ("write", "--pipeline", "1"), ("lease", "--pipeline", "1")],
    "etcd": [("write",), ("stale",), ("write", "--read-share", "0.5"), ("get",), ("lease",),
             ("lease", "--shared-lease"), ("write", "--pipeline", "1"),
             ("write", "--value-bytes", "0"), ("stale", "--value-bytes", "0"),
             ("write", "--value-bytes", "20000")],
}
# What must fail on a store without keys.
WRONG = {"redis": ["get", "stale"], "postgres": ["get"], "etcd": ["get", "stale"]}


def check(peer, program):
    with running(peer) as port:
        for workload in WRONG[peer]:
            # The last: a stale write of an absent key is right to be accepted, which is not a refusal.
            code, report = load(program, peer, port, workload)
            assert code == 1 and report["errors"] > 0, f"{workload} without keys is an error: {report}"

        code, report = load(program, peer, port, "write", "--distribution", "once")
        assert code == 0, report
        for workload, *more in RUNS[peer]:
            code, report = load(program, peer, port, workload, *more)
            assert code == 0 and report["errors"] == 0, f"{workload} {more}: {report}"
            assert report["operations"] == OPERATIONS, f"{workload} {more}: {report}"
            assert report["latency_us"]["p50"] > 0, f"{workload} {more}: {report}"

        code, report = load(program, peer, port, "write", "--rate", "2000", "--distribution", "zipfian")
        assert code == 0 and report["loop"] == "open", report


def main(peer, program):
    is_there = postgres_programs() if peer == "postgres" else shutil.which(
        {"redis": "redis-server", "etcd": "etcd"}[peer])
    if not is_there:
        skip(f"{peer} is not installed; tools/bench/compare.sh installs it")
    said = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    if f"{peer}->" not in said:
        skip(f"the load generator was built without the library for {peer}")
    check(peer, program)


main(*sys.argv[1:])
