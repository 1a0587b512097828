#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the pinned Node.js clients into the folder where their drivers are: npm_install.py FOLDER

Does nothing if they are there already. Without node or npm the test is skipped; with them a failing
installation is a failure.
"""

import os
import shutil
import subprocess
import sys

from live_server import skip

folder = sys.argv[1]
for tool in ("node", "npm"):
    if not shutil.which(tool):
        skip(f"{tool} is not installed")
lock, stamp = os.path.join(folder, "package-lock.json"), os.path.join(folder, "installed.lock")
if os.path.exists(stamp) and open(stamp, "rb").read() == open(lock, "rb").read():
    print("the clients are there already")
    sys.exit(0)
code = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder,
                      stdin=subprocess.DEVNULL, check=False).returncode
if code == 0:
    shutil.copyfile(lock, stamp)
sys.exit(code)
