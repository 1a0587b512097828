# SPDX-License-Identifier: Apache-2.0
"""A real fencekv-server for a test: on a free port, in a directory of its own, gone afterwards."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

SKIPPED = 77  # ctest's SKIP_RETURN_CODE of these tests.
READY_S = 60


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


@contextlib.contextmanager
def live_server(binary, *flags, directory=None, environment=None):
    """Yields (host, port, process). `environment` is added to that of the test. Ends the server with SIGTERM and expects exit code 0."""
    folder = tempfile.mkdtemp(prefix="fencekv-test-")
    log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
    process = subprocess.Popen(
        [binary, "--dir", directory or os.path.join(folder, "store"), "--port", "0", *flags],
        stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(environment or {})})
    late = threading.Timer(READY_S, process.kill)
    late.start()
    try:
        line = process.stdout.readline()
        late.cancel()
        if not line.startswith("ready "):
            log.seek(0)
            raise RuntimeError(f"the server did not start: {line!r}\n{log.read()}")
        host, port = line.split()[1].rsplit(":", 1)
        yield host, int(port), process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=30)
        if code != 0:
            log.seek(0)
            raise RuntimeError(f"the server ended with {code}\n{log.read()}")
    finally:
        late.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
