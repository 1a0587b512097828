#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Driver for redis-cli: one call a command, its JSON output taken as the reply."""

import json
import re
import shutil
import subprocess
import sys

host, port, protocol = sys.argv[1:]
if not shutil.which("redis-cli"):
    print("redis-cli is not installed")
    sys.exit(77)
for line in sys.stdin:
    words = json.loads(line)
    quoted = ['"' + "".join(c if c.isalnum() else f"\\x{ord(c):02x}" for c in w) + '"' for w in words]
    done = subprocess.run(
        ["redis-cli", f"-{protocol}", "-h", host, "-p", port, "--json", "-e", "--quoted-input", *quoted],
        capture_output=True, text=True, timeout=30, check=False)
    # With -e an error reply is an exit code of its own, and its text.
    if done.returncode != 0:
        answer = {"error": (done.stderr + done.stdout).strip().removeprefix('"').removeprefix("error:")}
    elif words[0] == "INFO":  # Which redis-cli prints as it is, in any mode.
        answer = {"reply": done.stdout}
    else:
        # An error within an array is printed as error:"…", which is no JSON.
        answer = {"reply": json.loads(re.sub(r'(?<=[\[,])error:"', '"error:', done.stdout))}
    print(json.dumps(answer), flush=True)
