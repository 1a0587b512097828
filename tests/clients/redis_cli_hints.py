#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""redis-cli on a terminal shows the arguments of fencekv's commands while they are typed: it takes
them from COMMAND DOCS.

    redis_cli_hints.py FENCEKV-SERVER
"""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import termios
import time

from live_server import live_server, skip

# What is typed, and what must then stand on the line behind it.
HINTS = [
    ("FENCE.SET ", r"key token value \[LEASE"),
    ("FENCE.SET k 1 v ", r"\[LEASE"),
    ("LEASE.ACQUIRE ", r"name owner"),
    ("GET ", r"key"),
]
PATIENCE_S = 20


def read_until(terminal, pattern):
    """What the terminal showed, up to `pattern` or the end of patience."""
    shown, deadline = "", time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 65536).decode("utf-8", "replace")
            except OSError:
                break
        # Without the escape sequences that colour the hint and move the cursor.
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
        if re.search(pattern, plain):
            return plain, True
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown), False


def main():
    if not shutil.which("redis-cli"):
        skip("redis-cli is not installed (Debian: redis-tools)")
    wrong = 0
    with live_server(sys.argv[1]) as (host, port, _):
        child, terminal = pty.fork()
        if child == 0:
            # Without a width it would ask the terminal where the cursor is, and wait for the answer.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
            os.environ.update(TERM="xterm", HOME="/nonexistent")
            os.execvp("redis-cli", ["redis-cli", "-h", host, "-p", str(port)])
        try:
            shown, ok = read_until(terminal, re.escape(f":{port}> "))
            if not ok:
                print(f"no prompt: {shown!r}")
                return 1
            for typed, hint in HINTS:
                os.write(terminal, typed.encode())
                shown, ok = read_until(terminal, re.escape(typed.rstrip()) + r"\s+" + hint)
                print(f"{'ok   ' if ok else 'WRONG'} after '{typed}' the hint {hint!r}")
                if not ok:
                    wrong += 1
                    print(f"      shown: {shown[-300:]!r}")
                os.write(terminal, b"\x15")  # Ctrl-U: an empty line again.
                time.sleep(0.1)
            os.write(terminal, b"help FENCE.SET\r")
            shown, ok = read_until(terminal, r"summary: \S+")
            print(f"{'ok   ' if ok else 'WRONG'} help FENCE.SET has a summary")
            wrong += not ok
            os.write(terminal, b"quit\r")
        finally:
            os.close(terminal)
            os.waitpid(child, 0)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
