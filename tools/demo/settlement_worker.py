#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A settlement worker on fencekv, with an ordinary Redis client: python3-redis as Debian ships it.

    settlement_worker.py NAME SOCKET ROWS.CSV

Takes the lease settlement:123, sums up its rows, waits for a line on standard input, and saves under
the token of its lease. Exit code: 0 saved, 3 refused because a newer holder exists, 1 anything else.
"""

import sys
import time
import uuid

import redis

from settlement import say, summarise, wait_before_saving

LEASE = "settlement:123"
TTL_MS = 2000


def acquire(store, owner):
    """The token, once the lease is free."""
    waiting = False
    while True:
        granted = store.execute_command("LEASE.ACQUIRE", LEASE, owner, TTL_MS)
        if granted:
            return granted[0]
        if not waiting:
            say(f"lease {LEASE} is held by another worker, asking again")
            waiting = True
        time.sleep(0.05)


def save(store, key, value, token):
    """Whether the store took it. The token goes along; the store decides."""
    try:
        version = store.execute_command("FENCE.SET", key, token, value, "LEASE", LEASE)
    except redis.ResponseError as error:
        say(f"REFUSED to save {key}: {error}")
        if not str(error).startswith("FENCED"):
            sys.exit(1)
        return False
    say(f"saved {key} (version {version})")
    return True


def main():
    name, socket, rows = sys.argv[1:]
    store = redis.Redis(unix_socket_path=socket, decode_responses=True)
    owner = str(uuid.uuid4())

    token = acquire(store, owner)
    say(f"has lease {LEASE} for {TTL_MS} ms, token {token}")
    summary = summarise(rows, LEASE, name)
    wait_before_saving(summary)

    # No look at the clock and no "do I still hold it?": whatever a worker checks here, it can be
    # frozen right behind the check. Only the store can compare and save in one step.
    saved = save(store, LEASE + ":summary", summary, token)
    if name == "A":
        # A key that B never writes: the fence of the lease, not of the key, has to hold A back.
        saved &= save(store, LEASE + ":report", "report by A", token)
    if not saved:
        return 3
    store.execute_command("LEASE.RELEASE", LEASE, owner, token)
    say(f"released lease {LEASE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
