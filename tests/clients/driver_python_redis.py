#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Driver for python3-redis. Debian's 4.3 speaks RESP2 only."""

import json
import sys

try:
    import redis
except ImportError:
    print(f"{sys.executable} has no module redis (Debian: python3-redis)")
    sys.exit(77)

host, port, protocol = sys.argv[1:]
if protocol != "2" and int(redis.__version__.split(".")[0]) < 5:
    print(f"python3-redis {redis.__version__} speaks RESP2 only")
    sys.exit(77)
options = {} if protocol == "2" else {"protocol": 3}


def plain(reply):
    if isinstance(reply, redis.ResponseError):
        return f"error:{reply}"
    return [plain(part) for part in reply] if isinstance(reply, list) else reply


store = redis.Redis(host=host, port=int(port), encoding="latin-1", decode_responses=True,
                    single_connection_client=True, client_name="conformance", **options)
for line in sys.stdin:
    command, *rest = json.loads(line)
    try:
        # raw: what redis-py makes of a reply by the command's name is its own affair.
        store.response_callbacks.clear()
        answer = {"reply": plain(store.execute_command(command, *rest))}
    except redis.ResponseError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
