#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LEASE.WATCH: what comes as a push, in which order, and that it disturbs nothing.

    watching.py FENCEKV-SERVER

Over a raw RESP3 connection: no client under test hands pushes that it does not know to its user.
(What node-redis does with them is in watching_node_redis.mjs.)
"""

import sys
import time

from live_server import live_server
from wire import Refused, Wire


def expect(actual, wanted):
    assert actual == wanted, f"expected {wanted}, got {actual}"


def tells_every_change_in_order_with_its_token(host, port):
    watcher, other = Wire(host, port, 3), Wire(host, port)
    expect(watcher.ask("LEASE.WATCH", "w1", "w2"), "OK")
    first, _ = other.ask("LEASE.ACQUIRE", "w1", "a", 60000)
    other.ask("LEASE.RENEW", "w1", "a", first, 60000)
    other.ask("LEASE.RELEASE", "w1", "a", first)
    second, _ = other.ask("LEASE.ACQUIRE", "w2", "a", 60000)
    other.ask("LEASE.REVOKE", "w2")
    third, _ = other.ask("LEASE.ACQUIRE", "w1", "b", 200)
    other.ask("LEASE.ACQUIRE", "not-watched", "b", 60000)
    for event, name, token in (("granted", "w1", first), ("released", "w1", first), ("granted", "w2", second),
                               ("revoked", "w2", second), ("granted", "w1", third), ("expired", "w1", third)):
        expect(watcher.next_push(), ["lease", event, name, token])
    bound = Wire(host, port)
    fourth, _ = bound.ask("LEASE.ACQUIRE", "w2", "c", 60000, "BIND")
    bound.close()
    expect(watcher.next_push(), ["lease", "granted", "w2", fourth])
    expect(watcher.next_push(), ["lease", "disconnected", "w2", fourth])


def stands_beside_the_replies(host, port):
    watcher, other = Wire(host, port, 3), Wire(host, port)
    watcher.ask("LEASE.WATCH", "beside")
    for round_number in range(50):
        token, _ = other.ask("LEASE.ACQUIRE", "beside", f"o{round_number}", 60000)
        expect(watcher.ask("ECHO", str(round_number)), str(round_number))
        other.ask("LEASE.RELEASE", "beside", f"o{round_number}", token)
    expect(watcher.ask("PING"), "PONG")
    # Those that came before a reply were put aside; the rest is still to come.
    events = [watcher.next_push()[1] for _ in range(100)]
    expect(events, ["granted", "released"] * 50)


def ends_when_it_is_told_to(host, port):
    other = Wire(host, port)
    for number, ending in enumerate((["LEASE.UNWATCH"], ["RESET"], ["HELLO", "2"])):
        watcher, name = Wire(host, port, 3), f"end-{number}"
        watcher.ask("LEASE.WATCH", name)
        watcher.ask(*ending)
        other.ask("LEASE.ACQUIRE", name, "o", 60000)
        time.sleep(0.2)
        expect(watcher.ask("PING"), "PONG")
        expect(watcher.pushes, [])


def is_refused_where_there_are_no_pushes(host, port):
    try:
        Wire(host, port, 2).ask("LEASE.WATCH", "x")
    except Refused as error:
        assert "LEASE.WAIT" in str(error), error
    else:
        raise AssertionError("RESP2 has no pushes")


def main():
    stories = (tells_every_change_in_order_with_its_token, stands_beside_the_replies, ends_when_it_is_told_to,
               is_refused_where_there_are_no_pushes)
    wrong = 0
    with live_server(sys.argv[1]) as (host, port, _):
        for story in stories:
            try:
                story(host, port)
            except (AssertionError, Refused, OSError) as problem:
                wrong += 1
                print(f"WRONG {story.__name__.replace('_', ' ')}: {problem!r}")
    print(f"{len(stories) - wrong} of {len(stories)} stories as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
