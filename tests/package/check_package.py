#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An outside project finds the installed package, links engine and client, and runs.

    check_package.py --cmake CMAKE --build BUILD-DIRECTORY --source SOURCE-DIRECTORY --compiler CXX
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
from live_server import live_server  # noqa: E402


def run(*command):
    print("$ " + " ".join(str(word) for word in command), flush=True)
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("cmake", "build", "source", "compiler"):
        arguments.add_argument("--" + name, required=True)
    chosen = arguments.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="fencekv-package-"))
    try:
        run(chosen.cmake, "--install", chosen.build, "--prefix", folder / "staged")
        # Moved before it is used: an installed package must not remember where it was made.
        prefix = folder / "prefix"
        os.rename(folder / "staged", prefix)
        for file in prefix.rglob("*.cmake"):
            text = file.read_text()
            for place in (chosen.source, str(folder / "staged")):
                if place in text:
                    print(f"{file.relative_to(prefix)} names {place}")
                    return 1
        shutil.copytree(HERE / "consumer", folder / "consumer")
        run(chosen.cmake, "-S", folder / "consumer", "-B", folder / "out", "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={chosen.compiler}",
            "-DCMAKE_BUILD_TYPE=Debug")
        run(chosen.cmake, "--build", folder / "out")
        run(folder / "out" / "embedded", folder / "store")
        # Both programs work from where they were installed.
        run(prefix / "bin" / "fencekv-admin", "verify", folder / "store")
        with live_server(str(prefix / "bin" / "fencekv-server")) as (host, port, _):
            run(folder / "out" / "remote", host, port)
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} ended with {error.returncode}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
