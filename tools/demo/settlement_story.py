#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the settlement story with real processes, on fencekv and the usual way, side by side.

    settlement_story.py --server FENCEKV-SERVER --worker SETTLEMENT-WORKER --rows rows.csv --late late.csv

Worker A takes a lease of 2 s, reads its rows, sums them up and is stopped (SIGSTOP) before it saves.
Late rows arrive. Worker B gets the lease, saves the right summary. A is continued and saves too.

Exit code: 0 if fencekv refused everything A sent late and the control run lost B's result; 1 if
fencekv let A through; 2 if the control run lost nothing, since then the story proves nothing; 3 if
it could not be played.
"""

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent
SUMMARY, REPORT = "settlement:123:summary", "settlement:123:report"
PATIENCE_S = 60  # For any one step; a slow machine takes a few seconds.
REFUSED = 3


class StoryError(Exception):
    """The story could not be played: nothing was shown."""


class Cast:
    """The processes of the story. All of them are gone when it ends, however it ends."""

    def __init__(self):
        self.processes = []

    def start(self, command, **options):
        # A session of its own: Ctrl-C reaches the story alone, which then ends everybody.
        process = subprocess.Popen(command, text=True, start_new_session=True, **options)
        self.processes.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()  # Also ends a process that is stopped.
        for process in self.processes:
            process.wait()


class Worker:
    """A running worker, its lines as they come."""

    def __init__(self, cast, command, name, note):
        self.name, self.note, self.said = name, note, []
        self.process = cast.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def until(self, beginning):
        """Its next line that begins so, or None once it has ended."""
        while True:
            try:
                line = self.lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise StoryError(f"worker {self.name} said nothing for {PATIENCE_S} s") from None
            if line is None:
                if beginning is not None:
                    raise StoryError(f"worker {self.name} ended before it said '{beginning}'")
                return None
            self.said.append(line)
            self.note(self.name, line)
            if beginning is not None and line.startswith(beginning):
                return line

    def stop(self):
        """Stops it, and returns once the kernel says that it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # The state is the first field behind the name, which stands in brackets.
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                return
            if time.monotonic() > deadline:
                raise StoryError(f"worker {self.name} did not stop")
            time.sleep(0.01)

    def go_on(self):
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def end(self):
        self.until(None)
        return self.process.wait(timeout=PATIENCE_S)


def start_fencekv(cast, folder, server):
    socket = folder / "fencekv.sock"
    process = cast.start([server, "--dir", str(folder / "store"), "--port", "-1", "--unix", str(socket)],
                         stdout=subprocess.PIPE, stderr=open(folder / "server.log", "w"))
    for line in process.stdout:
        if line.startswith("ready unix:"):
            return socket
    raise StoryError("fencekv-server did not start:\n" + (folder / "server.log").read_text())


def start_redis(cast, folder, server):
    socket = folder / "redis.sock"
    process = cast.start([server, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder),
                          "--save", "", "--appendonly", "no"], stdout=open(folder / "server.log", "w"))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            redis.Redis(unix_socket_path=str(socket)).ping()
            return socket
        except redis.ConnectionError:
            time.sleep(0.02)
    raise StoryError("redis-server did not start:\n" + (folder / "server.log").read_text())


class Run:
    """One telling of the story: who did what when, and what the store holds at the end."""

    def __init__(self, title):
        self.title, self.events, self.began = title, [], time.monotonic()

    def note(self, who, text):
        at = time.monotonic() - self.began
        self.events.append((at, who, text))
        print(f"  {at:5.1f} s  {who:>5}  {text}", flush=True)

    def play(self, start_server, server, worker, rows, late):
        print(f"\n{self.title}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="fencekv-demo-", dir="/tmp"))
        try:
            with Cast() as cast:
                socket = start_server(cast, folder, server)
                file = folder / "rows.csv"
                shutil.copyfile(rows, file)
                self.began = time.monotonic()

                a = Worker(cast, [*worker, "A", str(socket), str(file)], "A", self.note)
                computed_a = a.until("computed, about to save")
                a.stop()
                self.note("", "A is frozen (SIGSTOP) before it saves; its time runs on")
                a.go_on()  # The line is in its pipe: A saves as soon as it runs again.

                with open(file, "a", encoding="ascii") as out:
                    out.write(Path(late).read_text(encoding="ascii"))
                self.note("", f"{len(Path(late).read_text().splitlines())} late transactions arrive")

                b = Worker(cast, [*worker, "B", str(socket), str(file)], "B", self.note)
                computed_b = b.until("computed, about to save")
                b.go_on()
                if b.end() != 0:
                    raise StoryError("worker B could not do its work")

                self.note("", "A goes on (SIGCONT) and saves what it had computed")
                a.process.send_signal(signal.SIGCONT)
                self.exit_a = a.end()

                self.token_a, self.token_b = token_of(a.said), token_of(b.said)
                self.summary_a, self.summary_b = (c.split(": ", 1)[1] for c in (computed_a, computed_b))
                store = redis.Redis(unix_socket_path=str(socket), decode_responses=True)
                self.summary, self.report = store.get(SUMMARY), store.get(REPORT)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.note("", f"the store holds: {self.summary}")
        if self.summary_a.split(" by=")[0] == self.summary_b.split(" by=")[0]:
            raise StoryError("A and B computed the same, so nobody could tell whose result it is")
        return self

    def kept_b(self):
        return self.summary == self.summary_b

    def refused_a(self):
        """Why this run does not show that A was held back; empty if it does."""
        why = []
        if not self.kept_b():
            why.append(f"the summary of B was lost: the store holds '{self.summary}'")
        if self.report is not None:
            why.append(f"A wrote {REPORT}, which B never touched")
        if self.exit_a != REFUSED:
            why.append(f"A was not told that it was refused (exit code {self.exit_a})")
        if not self.token_a or not self.token_b or self.token_b <= self.token_a:
            why.append(f"the token of B ({self.token_b}) is not above that of A ({self.token_a})")
        return why


def token_of(lines):
    for line in lines:
        words = line.split()
        if line.startswith("has lease") and "token" in words:
            return int(words[words.index("token") + 1])
    return None


def side_by_side(left, right):
    """Both tellings as two columns, in the order in which things happened."""
    width = 58

    def column(run):
        yield run.title
        yield "-" * width
        for _, who, text in run.events:
            text = f"{who + ': ' if who else '* '}{text}"
            yield from textwrap.wrap(text, width, subsequent_indent="   ")
    one, other = list(column(left)), list(column(right))
    for line in range(max(len(one), len(other))):
        here = one[line] if line < len(one) else ""
        there = other[line] if line < len(other) else ""
        print(f"{here:<{width}} | {there}".rstrip())


def verdict(fenced_runs, control):
    """Says what was shown, and returns the exit code."""
    code = 0
    print()
    for run in fenced_runs:
        why = run.refused_a()
        if why:
            code = 1
            print(f"BROKEN  {run.title}: {'; '.join(why)}")
        else:
            print(f"OK      {run.title}: B's result is there, everything that A sent late was refused")
    if control.summary == control.summary_a and not control.kept_b():
        print(f"OK      {control.title}: B's result is lost, A overwrote it and nobody was told")
    else:
        code = code or 2
        print(f"BROKEN  {control.title}: it lost nothing, so this demo shows nothing")
    return code


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--server", required=True, help="fencekv-server")
    arguments.add_argument("--worker", required=True, help="the C++ worker")
    arguments.add_argument("--redis-server", default="redis-server")
    arguments.add_argument("--rows", required=True)
    arguments.add_argument("--late", required=True)
    arguments.add_argument("--plant", choices=["none", "no-fence", "no-loss"], default="none",
                           help="for the test of this demo: play the story the usual way where fencekv "
                                "belongs (no-fence), or the other way round (no-loss)")
    chosen = arguments.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)

    python = sys.executable
    in_python = (start_fencekv, chosen.server, [python, str(HERE / "settlement_worker.py")])
    in_cpp = (start_fencekv, chosen.server, [chosen.worker])
    usual = (start_redis, chosen.redis_server, [python, str(HERE / "control_worker.py")])
    if chosen.plant == "no-fence":
        in_cpp = usual
    if chosen.plant == "no-loss":
        usual = in_python

    try:
        rows = (chosen.rows, chosen.late)
        cpp = Run("fencekv, worker in C++").play(*in_cpp, *rows)
        script = Run("fencekv, worker in Python").play(*in_python, *rows)
        control = Run("the usual way: redis-server, SET NX PX").play(*usual, *rows)
    except (StoryError, OSError, redis.RedisError, subprocess.TimeoutExpired) as error:
        print(f"the story could not be played: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\ninterrupted; all processes are ended", file=sys.stderr)
        return 130

    print("\nSide by side\n")
    side_by_side(cpp, control)
    return verdict([cpp, script], control)


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.exit(main())
