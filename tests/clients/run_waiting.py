#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Waits for leases through a real client: granted, timed out, killed while waiting.

    run_waiting.py --server FENCEKV-SERVER --protocol 2|3 --client NAME DRIVER [ARGUMENTS]

The drivers are those of run_conformance.py. One driver is one process with one connection, so that a
client can be killed in the middle of its wait, as an operating system would.
"""

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from live_server import SKIPPED, live_server, skip
from wire import Wire, lease_info, until

# A client's reply comes so much after what caused it, at most: far more than it takes.
SOON_S = 15
PATIENCE_S = 30


class Driver:
    """The client under test, in a process of its own."""

    def __init__(self, words):
        # A group of its own: redis-cli is started by its driver, and must die with it.
        self.process = subprocess.Popen(words, text=True, encoding="utf-8", stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, start_new_session=True)
        self.answers = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.answers.put((time.monotonic(), line))
        self.answers.put((time.monotonic(), ""))

    def send(self, *words):
        try:
            self.process.stdin.write(json.dumps([str(w) for w in words]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() tells.

    def answer(self):
        """(what came, when). Exits if there is no client to test."""
        when, line = self.answers.get(timeout=PATIENCE_S)
        if not line.startswith("{"):
            code = self.process.wait(timeout=PATIENCE_S)
            if code == SKIPPED:
                skip(line.strip())
            raise AssertionError(f"the driver ended with {code}: {line}")
        return json.loads(line), when

    def ask(self, *words):
        self.send(*words)
        answer, _ = self.answer()
        if "error" in answer:
            raise AssertionError(f"{words}: {answer['error']}")
        return answer["reply"]

    def has_no_answer(self):
        return self.answers.empty()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()


class Stories:
    """One method a story; the name says what must hold. Each uses a lease of its own."""

    def __init__(self, new_driver, control):
        self.drivers, self.new_driver, self.control = [], new_driver, control

    def client(self):
        self.drivers.append(Driver(self.new_driver))
        # Connected, before anything is measured.
        assert self.drivers[-1].ask("PING") == "PONG"
        return self.drivers[-1]

    def close(self):
        for driver in self.drivers:
            driver.close()
        self.drivers.clear()

    def waiting(self, name, count):
        until(lambda: lease_info(self.control, name)["waiters"] == count, f"{count} waiters of {name}")

    def granted(self, driver):
        answer, when = driver.answer()
        assert isinstance(answer.get("reply"), list), f"expected a grant, got {answer}"
        token, remaining = answer["reply"]
        assert isinstance(token, str) and remaining > 0, answer
        return token, when

    def a_release_wakes_the_waiter(self):
        first, second = self.client(), self.client()
        token, _ = first.ask("LEASE.ACQUIRE", "release", "a", 60000)
        second.send("LEASE.ACQUIRE", "release", "b", 60000, "WAIT", 20000)
        self.waiting("release", 1)
        time.sleep(0.2)
        assert second.has_no_answer()
        released = time.monotonic()
        assert first.ask("LEASE.RELEASE", "release", "a", token) == "OK"
        newer, when = self.granted(second)
        assert int(newer) > int(token) and when - released < SOON_S

    def the_end_of_the_time_wakes_the_waiter(self):
        first, second = self.client(), self.client()
        asked = time.monotonic()
        first.ask("LEASE.ACQUIRE", "expiry", "a", 1000)
        second.send("LEASE.ACQUIRE", "expiry", "b", 60000, "WAIT", 20000)
        _, when = self.granted(second)
        assert 1 <= when - asked < 1 + SOON_S, when - asked

    def a_wait_that_is_over_is_answered_nil(self):
        first, second = self.client(), self.client()
        first.ask("LEASE.ACQUIRE", "timeout", "a", 60000)
        asked = time.monotonic()
        second.send("LEASE.ACQUIRE", "timeout", "b", 60000, "WAIT", 500)
        answer, when = second.answer()
        assert answer == {"reply": None}, answer
        assert 0.5 <= when - asked < 0.5 + SOON_S, when - asked
        assert second.ask("PING") == "PONG"
        assert lease_info(self.control, "timeout")["waiters"] == 0

    def a_client_that_is_killed_while_it_waits_leaves_its_place_to_the_next(self):
        first, killed, third, fourth = (self.client() for _ in range(4))
        token, _ = first.ask("LEASE.ACQUIRE", "killed", "a", 60000)
        for place, (driver, owner) in enumerate(((killed, "b"), (third, "c"), (fourth, "d")), 1):
            driver.send("LEASE.ACQUIRE", "killed", owner, 60000, "WAIT", 20000)
            self.waiting("killed", place)
        killed.kill()
        self.waiting("killed", 2)
        first.ask("LEASE.RELEASE", "killed", "a", token)
        newer, _ = self.granted(third)
        # Nothing was spent on the dead one, and the one behind still waits.
        assert int(newer) == int(token) + 1, (token, newer)
        assert fourth.has_no_answer()
        assert lease_info(self.control, "killed")["waiters"] == 1

    def a_holder_of_a_bound_lease_that_is_killed_leaves_it_at_once(self):
        first, second = self.client(), self.client()
        first.ask("LEASE.ACQUIRE", "bound", "a", 600000, "BIND")
        second.send("LEASE.ACQUIRE", "bound", "b", 60000, "WAIT", 20000)
        self.waiting("bound", 1)
        killed = time.monotonic()
        first.kill()
        _, when = self.granted(second)
        assert when - killed < SOON_S

    def readers_share_and_a_writer_waits_for_all_of_them(self):
        one, two, writer = self.client(), self.client(), self.client()
        first, _ = one.ask("LEASE.ACQUIRE", "shared", "a", 60000, "SHARED")
        second, _ = two.ask("LEASE.ACQUIRE", "shared", "b", 60000, "SHARED")
        writer.send("LEASE.ACQUIRE", "shared", "c", 60000, "WAIT", 20000)
        self.waiting("shared", 1)
        one.ask("LEASE.RELEASE", "shared", "a", first)
        time.sleep(0.2)
        assert writer.has_no_answer()
        two.ask("LEASE.RELEASE", "shared", "b", second)
        self.granted(writer)

    def several_names_are_waited_for_together(self):
        first, second = self.client(), self.client()
        token, _ = first.ask("LEASE.ACQUIRE", "several-2", "a", 60000)
        second.send("LEASE.MACQUIRE", 2, "several-1", "several-2", "b", 60000, "WAIT", 20000)
        self.waiting("several-2", 1)
        assert lease_info(self.control, "several-1")["holders"] == [], "all or none"
        first.ask("LEASE.RELEASE", "several-2", "a", token)
        newer, _ = self.granted(second)
        for name in ("several-1", "several-2"):
            assert lease_info(self.control, name)["fence"] == newer

    def a_change_is_waited_for(self):
        first, second = self.client(), self.client()
        second.send("LEASE.WAIT", "change", "0", 20000)
        time.sleep(0.2)
        assert second.has_no_answer()
        token, _ = first.ask("LEASE.ACQUIRE", "change", "a", 60000)
        answer, _ = second.answer()
        assert answer == {"reply": ["granted", "change", token]}, answer
        second.send("LEASE.WAIT", "change", token, 20000)
        time.sleep(0.2)
        assert second.has_no_answer()
        first.ask("LEASE.RELEASE", "change", "a", token)
        answer, _ = second.answer()
        assert answer == {"reply": ["released", "change", token]}, answer
        # One that comes after the change is answered at once.
        assert second.ask("LEASE.WAIT", "change", token, 20000) == ["released", "change", token]
        asked = time.monotonic()
        second.send("LEASE.WAIT", "change", "0", 300)
        answer, when = second.answer()
        assert answer == {"reply": None} and when - asked >= 0.3, answer


# Stories that a client cannot be part of.
NOT_FOR = {
    "redis-cli": {"a_holder_of_a_bound_lease_that_is_killed_leaves_it_at_once": "one connection a call"},
}


def run_stories(stories, client):
    wrong, names = 0, [n for n in vars(Stories) if n.startswith(("a_", "the_", "readers_", "several_"))]
    for name, reason in NOT_FOR.get(client, {}).items():
        names.remove(name)
        print(f"not for {client}: {name.replace('_', ' ')}: {reason}")
    for name in names:
        try:
            getattr(stories, name)()
        except (AssertionError, queue.Empty) as problem:
            wrong += 1
            print(f"WRONG {name.replace('_', ' ')}: {problem!r}")
        finally:
            stories.close()
    print(f"{len(names) - wrong} of {len(names)} stories as expected")
    return 1 if wrong or not names else 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--server", required=True)
    arguments.add_argument("--protocol", choices=("2", "3"), required=True)
    arguments.add_argument("--client", required=True)
    arguments.add_argument("--needs", help="a folder without which there is nothing to test")
    arguments.add_argument("driver", nargs=argparse.REMAINDER)
    chosen = arguments.parse_args()
    if not shutil.which(chosen.driver[0]):
        skip(f"{chosen.driver[0]} is not installed")
    if chosen.needs and not Path(chosen.needs).is_dir():
        skip(f"{chosen.needs} is not there: npm did not install it")
    with live_server(chosen.server) as (host, port, _):
        control = Wire(host, port)
        stories = Stories([*chosen.driver, host, str(port), chosen.protocol], control)
        print(f"{chosen.client}, RESP{chosen.protocol}:")
        code = run_stories(stories, chosen.client)
        control.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
