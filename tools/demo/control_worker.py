#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same settlement worker the usual way, on a real redis-server: SET NX PX takes the lock, a
compare-and-delete script gives it back, and a plain SET saves the result.

    control_worker.py NAME SOCKET ROWS.CSV
"""

import sys
import time
import uuid

import redis

from settlement import say, summarise, wait_before_saving

LOCK = "settlement:123"
TTL_MS = 2000
RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
"""


def main():
    name, socket, rows = sys.argv[1:]
    store = redis.Redis(unix_socket_path=socket, decode_responses=True)
    owner = str(uuid.uuid4())

    waiting = False
    while not store.set(LOCK, owner, nx=True, px=TTL_MS):
        if not waiting:
            say(f"lock {LOCK} is held by another worker, asking again")
            waiting = True
        time.sleep(0.05)
    say(f"has lock {LOCK} for {TTL_MS} ms")
    summary = summarise(rows, LOCK, name)
    wait_before_saving(summary)

    store.set(LOCK + ":summary", summary)
    say(f"saved {LOCK}:summary")
    if name == "A":
        store.set(LOCK + ":report", "report by A")
        say(f"saved {LOCK}:report")
    if store.eval(RELEASE, 1, LOCK, owner) == 1:
        say(f"released lock {LOCK}")
    else:
        say(f"notices that lock {LOCK} was not its own any more: too late")
    return 0


if __name__ == "__main__":
    sys.exit(main())
