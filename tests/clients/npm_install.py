#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the pinned Node.js clients into the folder where their drivers are: npm_install.py FOLDER

Does nothing if they are there already. Without node or npm, or where their registry cannot be reached,
the test is skipped, and with it whatever needs the clients; any other failure of npm is a failure.
"""

import os
import re
import shutil
import subprocess
import sys

from live_server import skip

ATTEMPTS, SECONDS_EACH = 3, 50
UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH"
                         r"|ERR_SOCKET_TIMEOUT|E429|E50[0-9])\b")


def install():
    """Returns None if the clients are installed, and why not if another attempt may help."""
    try:
        npm = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts",
                              "--fetch-retries=1", "--fetch-timeout=20000"],
                             cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             timeout=SECONDS_EACH, check=False)
    except subprocess.TimeoutExpired:
        return f"it did not end within {SECONDS_EACH} s"
    sys.stderr.write(npm.stderr)
    if npm.returncode == 0:
        return None
    unreachable = UNREACHABLE.search(npm.stderr)
    if not unreachable:
        sys.exit(npm.returncode)
    return f"it says {unreachable.group()}"


folder = sys.argv[1]
for tool in ("node", "npm"):
    if not shutil.which(tool):
        skip(f"{tool} is not installed")
lock, stamp = os.path.join(folder, "package-lock.json"), os.path.join(folder, "installed.lock")
if os.path.exists(stamp) and open(stamp, "rb").read() == open(lock, "rb").read():
    print("the clients are there already")
    sys.exit(0)
for attempt in range(ATTEMPTS):
    why = install()
    if why is None:
        shutil.copyfile(lock, stamp)
        sys.exit(0)
    # What is there by half would look like the clients to whoever needs them.
    shutil.rmtree(os.path.join(folder, "node_modules"), ignore_errors=True)
skip(f"npm cannot reach its registry, tried {ATTEMPTS} times: {why}")
