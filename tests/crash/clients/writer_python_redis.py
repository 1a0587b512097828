#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client whose server will be killed: writes under leases of its own with python3-redis, and says
what it does before each command, and what it was told after it, as tests/support/acknowledgement_log.h
reads it.

    writer_python_redis.py SOCKET NAME SEED

It begins when it is told `go` on standard input, says `gone` when the server is, and waits for the next
`go`. `wrong …` is an answer that should not be.
"""

import random
import sys

try:
    import redis
except ImportError:
    print(f"absent: {sys.executable} has no module redis (Debian: python3-redis)", flush=True)
    sys.exit(77)

path, name, seed = sys.argv[1:]
random.seed(seed)
KEYS = [f"{name}.{i}" for i in range(6)]


def say(*lines):
    # In one piece: a command is only sent when all that was to be said before it is out.
    sys.stdout.write("".join(line + "\n" for line in lines))
    sys.stdout.flush()


def write(ask, token, versions):
    keys = KEYS[:2] if random.random() < 0.3 else [random.choice(KEYS)]
    deletes = len(keys) == 1 and random.random() < 0.2
    value = "-" if deletes else random.choice("abcdefgh") * random.randint(1, 300)
    told = [f"{key} {token} {versions[key] + 1} {value}" for key in keys]
    say(*("try " + line for line in told))
    if len(keys) == 2:
        reply = ask("FENCE.MSET", token, 2, keys[0], value, keys[1], value, "LEASE", name)
    elif deletes:
        reply = [ask("FENCE.DEL", keys[0], token, "LEASE", name)]
    else:
        reply = [ask("FENCE.SET", keys[0], token, value, "LEASE", name)]
    for key in keys:
        versions[key] += 1
    if reply != [versions[key] for key in keys]:
        say(f"wrong version {reply}, {versions}")
    say(*("ack " + line for line in told))


def work():
    store = redis.Redis(unix_socket_path=path, decode_responses=True, single_connection_client=True)
    # What redis-py makes of a reply by the command's name is its own affair.
    store.response_callbacks.clear()
    ask = store.execute_command
    versions = {}
    for key in KEYS:
        state = ask("FENCE.GET", key)
        versions[key] = state[state.index("version") + 1]
    while True:
        owner = f"{name}-{random.getrandbits(60)}"
        granted = ask("LEASE.ACQUIRE", name, owner, 3600000)
        if granted is None:
            say("wrong: the lease is not free")
        token = granted[0]
        say(f"grant {name} {owner} {token}")
        for _ in range(20):
            write(ask, token, versions)
        say(f"releasing {name}")
        ask("LEASE.RELEASE", name, owner, token)
        say(f"released {name}")


for line in sys.stdin:
    try:
        work()
    except (redis.ConnectionError, OSError):
        say("gone")
    except Exception as problem:  # pylint: disable=broad-except
        say(f"wrong {problem!r}", "gone")
