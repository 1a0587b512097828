# SPDX-License-Identifier: Apache-2.0
"""RESP over a socket, with the standard library only: for what the clients under test keep to
themselves (pushes), and for tests that are not about clients."""

import socket
import time


class Refused(Exception):
    """An error reply; str() is its line."""


class Wire:
    def __init__(self, host, port, protocol=2, patience=30):
        self.socket = socket.create_connection((host, port), timeout=patience)
        self.replies = self.socket.makefile("rb")
        self.pushes = []
        if protocol == 3:
            self.ask("HELLO", "3")

    def send(self, *words):
        parts = [str(w).encode("latin-1") if not isinstance(w, bytes) else w for w in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))

    def read(self):
        """The next reply. Pushes before it are put aside."""
        while True:
            kind, value = self._item()
            if kind != ">":
                if isinstance(value, Refused):
                    raise value
                return value
            self.pushes.append(value)

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def next_push(self, patience=10):
        """The next push; nothing else may come."""
        if not self.pushes:
            self.socket.settimeout(patience)
            kind, value = self._item()
            assert kind == ">", f"a push was expected, not {value!r}"
            return value
        return self.pushes.pop(0)

    def close(self):
        self.replies.close()
        self.socket.close()

    def _item(self):
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection ended")
        kind, rest = chr(line[0]), line[1:-2].decode("latin-1")
        if kind == "+":
            return kind, rest
        if kind == "-":
            return kind, Refused(rest)
        if kind == ":":
            return kind, int(rest)
        if kind == "_":
            return kind, None
        if kind == "#":
            return kind, rest == "t"
        if kind in "$=":
            if rest == "-1":
                return kind, None
            return kind, self.replies.read(int(rest) + 2)[:-2].decode("latin-1")
        if kind in "*~>":
            return kind, None if rest == "-1" else [self._item()[1] for _ in range(int(rest))]
        if kind == "%":
            return kind, {self._item()[1]: self._item()[1] for _ in range(int(rest))}
        raise ConnectionError(f"not understood: {line!r}")


def lease_info(wire, name):
    """LEASE.INFO as a map, whatever the protocol of `wire`."""
    def as_map(parts):
        return parts if isinstance(parts, dict) else dict(zip(parts[::2], parts[1::2]))
    info = as_map(wire.ask("LEASE.INFO", name))
    info["holders"] = [as_map(holder) for holder in info["holders"]]
    return info


def until(condition, what, patience=20):
    """Waits until `condition()` holds, and returns what it returned."""
    deadline = time.monotonic() + patience
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come: {what}")
        time.sleep(0.01)
