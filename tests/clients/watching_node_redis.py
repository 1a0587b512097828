#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""node-redis on a connection that watches: watching_node_redis.py FENCEKV-SERVER NODE-FOLDER"""

import shutil
import subprocess
import sys
from pathlib import Path

from live_server import live_server, skip

server, folder = sys.argv[1], Path(sys.argv[2])
if not shutil.which("node"):
    skip("node is not installed")
if not (folder / "node_modules").is_dir():
    skip(f"{folder}/node_modules is not there: npm did not install it")
with live_server(server) as (host, port, _):
    done = subprocess.run(["node", str(folder / "watching_node_redis.mjs"), host, str(port)], text=True,
                          capture_output=True, timeout=60, check=False)
print(done.stdout, done.stderr, sep="")
sys.exit(0 if done.returncode == 0 and done.stdout.endswith("done\n") else 1)
