#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wall clock of a real server jumps an hour back and a year forward while leases run: nothing
happens. No lease ends early, none lasts longer, tokens go on rising; only the wall-clock times that are
shown to people move.

    wall_clock.py FENCEKV-SERVER

libfaketime (Debian: faketime) fakes CLOCK_REALTIME in the server alone. That it does, and that it leaves
CLOCK_BOOTTIME alone, is checked first: else nothing would be shown here.
"""

import contextlib
import glob
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
from live_server import live_server, skip  # noqa: E402
from wire import Refused, Wire, lease_info  # noqa: E402

HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S
# A server on a busy machine may be late by so much; never early.
LATE_S = 10


def boot_time():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class FakeClock:
    """The wall clock of the processes that run in `environment`."""

    def __init__(self, library, folder):
        self.file = Path(folder) / "offset"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}

    def set(self, offset_s):
        # Replaced in one step: the server reads it all the time.
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset_s:+d}\n")
        new.replace(self.file)

    def check(self):
        """Skips if the library does not do what is needed here."""
        program = ("import time; print(time.clock_gettime(time.CLOCK_REALTIME), "
                   "time.clock_gettime(time.CLOCK_MONOTONIC), time.clock_gettime(time.CLOCK_BOOTTIME))")
        self.set(YEAR_S)
        shown = subprocess.run([sys.executable, "-c", program], env={**os.environ, **self.environment},
                               capture_output=True, text=True, timeout=60, check=False).stdout.split()
        self.set(0)
        real = [time.clock_gettime(c) for c in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
        off = [float(fake) - true for fake, true in zip(shown, real)]
        if len(off) != 3 or abs(off[0] - YEAR_S) > HOUR_S or abs(off[1]) > HOUR_S or abs(off[2]) > HOUR_S:
            skip(f"libfaketime does not fake the wall clock alone here: {off}")


def expect(condition, *said):
    if not condition:
        raise AssertionError(" ".join(map(str, said)))


def wall_offset(wire):
    """How far the server's wall clock is from ours, in seconds, as TIME tells."""
    seconds, _ = wire.ask("TIME")
    return int(seconds) - time.time()


def remaining_s(wire, name):
    holders = lease_info(wire, name)["holders"]
    return holders[0]["remaining"] / 1000 if holders else None


class Jumps:
    """A server whose wall clock jumps. What has happened so far is in the fields."""

    def __init__(self, host, port, clock):
        self.connect = lambda: Wire(host, port)
        self.wire, self.clock = self.connect(), clock
        self.tokens = []

    def acquire(self, name, owner, ttl_ms, *options):
        granted = self.wire.ask("LEASE.ACQUIRE", name, owner, ttl_ms, *options)
        expect(granted is not None, name, "was not free")
        self.tokens.append(int(granted[0]))
        return granted[0]

    def jump(self, offset_s):
        self.clock.set(offset_s)
        # The control: the server does see another wall clock.
        expect(abs(wall_offset(self.wire) - offset_s) < 60, "the jump was not seen", wall_offset(self.wire))

    def a_lease_has_its_time_whatever_the_wall_clock_says(self):
        for offset in (-HOUR_S, YEAR_S, 0):
            name = f"time-{offset}"
            self.jump(0)
            asked = boot_time()
            token = self.acquire(name, "o", 2000)
            granted = boot_time()
            self.jump(offset)
            left = remaining_s(self.wire, name)
            while left is not None:
                now = boot_time()
                # In (what is left at least, what is left at most].
                expect(left <= asked + 2 - now + LATE_S and left > 0, name, "has", left, "s")
                last_held = now
                time.sleep(0.05)
                left = remaining_s(self.wire, name)
            ended = boot_time()
            expect(ended >= asked + 2, name, "ended early", ended - asked)
            expect(last_held <= granted + 2 + LATE_S, name, "lasted longer")
            try:
                self.wire.ask("LEASE.RENEW", name, "o", token, 60000)
                expect(False, "an expired lease was renewed")
            except Refused as error:
                expect("LEASELOST expired" in str(error), error)

    def a_waiter_is_woken_when_the_time_is_over_and_not_before(self):
        for offset in (-HOUR_S, YEAR_S):
            self.jump(0)
            name, came = f"waiter-{offset}", []
            asked = boot_time()
            token = self.acquire(name, "holder", 2000)
            waiter = self.connect()
            timeout = self.connect()

            def wait():
                came.append((waiter.ask("LEASE.ACQUIRE", name, "waiter", 60000, "WAIT", 30000), boot_time()))

            def give_up():
                began = boot_time()
                refused = timeout.ask("LEASE.ACQUIRE", name, "short", 60000, "WAIT", 500)
                came.append((refused, boot_time() - began))

            threads = [threading.Thread(target=wait), threading.Thread(target=give_up)]
            for thread in threads:
                thread.start()
            time.sleep(0.2)
            self.jump(offset)
            for thread in threads:
                thread.join(30)
            expect(len(came) == 2, "somebody still waits")
            (nothing, after), (granted, when) = came
            expect(nothing is None and 0.5 <= after <= 0.5 + LATE_S, "a wait of 0.5 s:", nothing, after)
            expect(granted is not None and 2 <= when - asked <= 2 + LATE_S, "woken after", when - asked)
            expect(int(granted[0]) > int(token), "a smaller token")
            self.tokens.append(int(granted[0]))
            waiter.close()
            timeout.close()

    def a_delay_counts_as_a_lease_does(self):
        self.jump(0)
        self.acquire("delayed", "o", 60000, "DELAY", 4000)
        began = boot_time()
        self.wire.ask("LEASE.REVOKE", "delayed")
        self.jump(YEAR_S)
        expect(self.wire.ask("LEASE.ACQUIRE", "delayed", "p", 60000) is None, "the delay ended early")
        granted = self.wire.ask("LEASE.ACQUIRE", "delayed", "p", 60000, "WAIT", 20000)
        expect(granted and 4 <= boot_time() - began <= 4 + LATE_S, granted, boot_time() - began)
        self.tokens.append(int(granted[0]))

    def a_renewal_gives_the_time_that_was_asked_for(self):
        self.jump(YEAR_S)
        token = self.acquire("renewed", "o", 5000)
        self.jump(-HOUR_S)
        expect(self.wire.ask("LEASE.RENEW", "renewed", "o", token, 60000) == 60000, "renewed for another time")
        expect(59 - LATE_S <= remaining_s(self.wire, "renewed") <= 60, remaining_s(self.wire, "renewed"))

    def only_what_is_shown_to_people_moves(self):
        self.jump(0)
        token = self.acquire("shown", "o", 60000)
        for offset in (YEAR_S, -HOUR_S):
            self.jump(offset)
            self.wire.ask("FENCE.SET", "key", token, "v", "LEASE", "shown")
            described = self.wire.ask("FENCE.INFO", "key")
            written = dict(zip(described[::2], described[1::2]))["written"] / 1000
            expect(abs(written - time.time() - offset) < 60, "written", written)
        expect(remaining_s(self.wire, "shown") > 60 - 20, "the lease lost time")


def restart_between_jumps(binary, clock, folder):
    """In the same boot a lease goes on over a restart with exactly its time, whatever the wall clock."""
    store = str(Path(folder) / "store")
    with live_server(binary, directory=store, environment=clock.environment) as (host, port, _):
        wire = Wire(host, port)
        asked = boot_time()
        token, _ = wire.ask("LEASE.ACQUIRE", "job", "o", 60000)
        granted = boot_time()
    tokens = [int(token)]
    for offset in (YEAR_S, -HOUR_S):
        clock.set(offset)
        with live_server(binary, directory=store, environment=clock.environment) as (host, port, _):
            wire = Wire(host, port)
            expect(abs(wall_offset(wire) - offset) < 60, "the jump was not seen")
            before = boot_time()
            left = remaining_s(wire, "job")
            after = boot_time()
            # Rounded up to milliseconds.
            expect(left is not None and 60 - (after - asked) <= left <= 60 - (before - granted) + 0.002,
                   "after a restart:", left, "of", 60 - (before - granted))
            tokens.append(int(wire.ask("LEASE.ACQUIRE", f"next-{offset}", "o", 1000)[0]))
    expect(tokens == sorted(set(tokens)), "tokens", tokens)


def main():
    libraries = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not libraries:
        skip("libfaketime is not installed (Debian: faketime)")
    binary, wrong, names = sys.argv[1], 0, [n for n in vars(Jumps) if n.startswith(("a_", "only_"))]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencekv-clock-"))
        clock = FakeClock(libraries[0], folder)
        clock.check()
        host, port, _ = stack.enter_context(live_server(binary, environment=clock.environment))
        jumps = Jumps(host, port, clock)
        for name in [*names, "tokens rise", "a restart"]:
            try:
                if name == "tokens rise":
                    expect(len(jumps.tokens) >= 8 and jumps.tokens == sorted(set(jumps.tokens)), jumps.tokens)
                elif name == "a restart":
                    restart_between_jumps(binary, clock, folder)
                else:
                    getattr(jumps, name)()
            except (AssertionError, Refused, OSError) as problem:
                wrong += 1
                print(f"WRONG {name.replace('_', ' ')}: {problem!r}")
    print(f"{len(names) + 2 - wrong} of {len(names) + 2} as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
