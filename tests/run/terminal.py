#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fencekv-run at a terminal, as a job of an interactive shell: what is typed reaches the command, ^C ends
it, ^Z stops it and gives the shell back, fg goes on.

    terminal.py FENCEKV-SERVER FENCEKV-RUN
"""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
from live_server import live_server, skip  # noqa: E402
from wire import Wire, lease_info, until  # noqa: E402

PATIENCE_S = 20


class Shell:
    """bash on a terminal of its own."""

    def __init__(self, folder):
        self.shown = ""
        self.id, self.terminal = pty.fork()
        if self.id == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       {"PATH": os.environ["PATH"], "PS1": "ready> ", "TERM": "dumb", "HOME": folder})
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 500, 0, 0))
        self.expect("ready> ")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def expect(self, pattern):
        """Waits until `pattern` is shown, and forgets everything up to it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.shown)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} was not shown, but {self.shown!r}")
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 65536).decode("utf-8", "replace")
        self.shown = self.shown[found.end():]

    def close(self):
        os.kill(self.id, signal.SIGKILL)
        os.waitpid(self.id, 0)
        os.close(self.terminal)


def tell_code(shell, wanted):
    shell.type("echo code=$?=\n")
    shell.expect(rf"code={wanted}=")
    shell.expect("ready> ")


def what_is_typed_reaches_the_command(shell, run, _):
    shell.type(f"{run} -- sh -c 'read line; echo heard:$line:'\n")
    shell.expect("\n")
    shell.type("hello\n")
    shell.expect("heard:hello:")
    shell.expect("ready> ")
    tell_code(shell, 0)


def an_interrupt_ends_the_command(shell, run, control):
    # exec: a shell that is about to start another command loses a signal now and then (dash 0.5.12
    # between vfork() and exec()), and waits for that command then.
    shell.type(f"{run} -- sh -c 'echo st''arted; exec sleep 1000'\n")
    shell.expect("started")
    shell.type("\x03")
    shell.expect("ready> ")
    tell_code(shell, 130)
    until(lambda: not lease_info(control, "job")["holders"], "the lease was given back")


def a_stop_gives_the_shell_back_and_fg_goes_on(shell, run, _):
    shell.type(f"{run} --ttl 60s -- sh -c 'echo st''arted; read line; echo heard:$line:; exit 7'\n")
    shell.expect("started")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.expect("ready> ")
    shell.type("echo still''here\n")
    shell.expect("stillhere")
    shell.expect("ready> ")
    shell.type("fg\n")
    shell.expect("\n")
    time.sleep(0.5)
    shell.type("again\n")
    shell.expect("heard:again:")
    shell.expect("ready> ")
    tell_code(shell, 7)


def a_job_in_the_background_leaves_the_terminal_alone(shell, run, _):
    shell.type(f"{run} -- sh -c 'sleep 1; echo do''ne' &\n")
    shell.expect("ready> ")
    shell.type("echo mean''while\n")
    shell.expect("meanwhile")
    shell.expect("done")
    shell.type("echo st''ill\n")
    shell.expect("still")


def main():
    if not shutil.which("bash"):
        skip("bash is not installed")
    server, runner = sys.argv[1:]
    stories = (what_is_typed_reaches_the_command, an_interrupt_ends_the_command,
               a_stop_gives_the_shell_back_and_fg_goes_on, a_job_in_the_background_leaves_the_terminal_alone)
    wrong = 0
    with live_server(server) as (host, port, _), tempfile.TemporaryDirectory() as folder:
        control = Wire(host, port)
        for story in stories:
            shell = Shell(folder)
            try:
                story(shell, f"{runner} --port {port} --lease job", control)
            except (AssertionError, OSError) as problem:
                wrong += 1
                print(f"WRONG {story.__name__.replace('_', ' ')}: {problem!r}")
            finally:
                shell.close()
        control.close()
    print(f"{len(stories) - wrong} of {len(stories)} stories as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
