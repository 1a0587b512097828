#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real server is stopped (SIGSTOP) for longer than a ttl. What is overdue when it goes on is expired before
anything that was queued meanwhile is answered.

    frozen_server.py FENCEKV-SERVER
"""

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
from live_server import live_server  # noqa: E402
from wire import Refused, Wire, lease_info, until  # noqa: E402

# Long enough for a busy machine to build up each scene before the server is stopped.
TTL_S = 3


def expect(condition, *said):
    if not condition:
        raise AssertionError(" ".join(map(str, said)))


def refusal(wire):
    """The error that comes next on `wire`."""
    try:
        return f"no error but {wire.read()}"
    except Refused as error:
        return str(error)


def is_stopped(pid):
    """Whether no thread of the process runs. The signal alone only asks, and a busy machine takes its time."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        states.append(stat.read_text(encoding="ascii").rpartition(") ")[2][0])
    return all(state == "T" for state in states)


class Freeze:
    def __init__(self, host, port, process):
        self.process = process
        self.connect = lambda: Wire(host, port)

    def frozen_while(self, work):
        """Runs `work` while the server is stopped, for more than a ttl altogether."""
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(self.process.pid), "the stop")
        began = time.monotonic()
        try:
            work()
            time.sleep(max(0.0, began + TTL_S + 0.5 - time.monotonic()))
        finally:
            self.process.send_signal(signal.SIGCONT)

    def nothing_that_was_queued_revives_an_overdue_lease(self):
        holder, other = self.connect(), self.connect()
        token, _ = holder.ask("LEASE.ACQUIRE", "alone", "a", TTL_S * 1000)

        def queue():
            holder.send("LEASE.RENEW", "alone", "a", token, 60000)
            holder.send("FENCE.SET", "alone-key", token, "v", "LEASE", "alone", "LIVE")
            holder.send("LEASE.ACQUIRE", "alone", "a", 60000)

        self.frozen_while(queue)
        expect(refusal(holder).startswith("LEASELOST expired"), "the renewal")
        expect(refusal(holder).startswith("EXPIRED"), "the write that must be live")
        newer, _ = holder.read()
        expect(int(newer) > int(token), "an expired lease came back with its token")
        expect(other.ask("GET", "alone-key") is None, "the late write landed")

    def a_queued_acquire_gets_an_overdue_lease(self):
        holder, other = self.connect(), self.connect()
        token, _ = holder.ask("LEASE.ACQUIRE", "queued", "a", TTL_S * 1000)
        self.frozen_while(lambda: other.send("LEASE.ACQUIRE", "queued", "b", 60000))
        granted = other.read()
        expect(granted is not None and int(granted[0]) > int(token), granted)

    def a_waiter_gets_it_before_anything_queued_is_answered(self):
        holder, waiter, late = self.connect(), self.connect(), self.connect()
        token, _ = holder.ask("LEASE.ACQUIRE", "waited", "a", TTL_S * 1000)
        waiter.send("LEASE.ACQUIRE", "waited", "b", 60000, "WAIT", 60000)
        until(lambda: lease_info(late, "waited")["waiters"] == 1, "the waiter")

        def queue():
            holder.send("LEASE.RENEW", "waited", "a", token, 60000)
            holder.send("FENCE.SET", "waited-key", token, "late", "LEASE", "waited")
            late.send("LEASE.ACQUIRE", "waited", "c", 60000)

        self.frozen_while(queue)
        newer, _ = waiter.read()
        expect(int(newer) == int(token) + 1, "the waiter was not the next", newer)
        expect(refusal(holder).startswith("LEASELOST"), "the renewal")
        expect(refusal(holder).startswith(f"FENCED {newer} {token}"), "the write")
        expect(late.read() is None, "who asked later got it")

    def a_wait_that_was_over_meanwhile_is_not_granted(self):
        holder, short, long = self.connect(), self.connect(), self.connect()
        token, _ = holder.ask("LEASE.ACQUIRE", "over", "a", TTL_S * 1000)
        short.send("LEASE.ACQUIRE", "over", "b", 60000, "WAIT", int(TTL_S * 500))
        until(lambda: lease_info(long, "over")["waiters"] == 1, "the short wait")
        long.send("LEASE.ACQUIRE", "over", "c", 60000, "WAIT", 60000)
        until(lambda: lease_info(holder, "over")["waiters"] == 2, "the long wait")
        self.frozen_while(lambda: None)
        expect(short.read() is None, "its time was over")
        granted = long.read()
        expect(granted is not None and int(granted[0]) > int(token), granted)

    def the_expiry_is_told_before_the_grant(self):
        holder, other, watcher = self.connect(), self.connect(), self.connect()
        watcher.ask("HELLO", "3")
        watcher.ask("LEASE.WATCH", "told")
        token, _ = holder.ask("LEASE.ACQUIRE", "told", "a", TTL_S * 1000)
        self.frozen_while(lambda: other.send("LEASE.ACQUIRE", "told", "b", 60000))
        newer, _ = other.read()
        events = [watcher.next_push() for _ in range(3)]
        expect(events == [["lease", "granted", "told", token], ["lease", "expired", "told", token],
                          ["lease", "granted", "told", newer]], events)


def main():
    names = [n for n in vars(Freeze) if n.startswith(("nothing_", "a_", "the_"))]
    wrong = 0
    with live_server(sys.argv[1]) as (host, port, process):
        for name in names:
            try:
                getattr(Freeze(host, port, process), name)()
            except (AssertionError, Refused, OSError) as problem:
                wrong += 1
                print(f"WRONG {name.replace('_', ' ')}: {problem!r}")
    print(f"{len(names) - wrong} of {len(names)} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
