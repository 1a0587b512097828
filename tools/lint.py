#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources named, on all processors.

    tools/lint.py BUILD FILE...

BUILD is a configured build directory, which says how each file is compiled. A file without a finding is not
looked at again until something changes of what clang-tidy sees: its text with all that it includes, comments
too, how it is compiled, .clang-tidy, or clang-tidy itself. What was found clean is remembered in
$XDG_CACHE_HOME/fencekv-lint (~/.cache) for as long as it is asked for. Exit code: 0, or 1 if there was a finding.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fencekv-lint"
TIDY = "clang-tidy-14"
COMPILER = "clang++-14"  # sees what clang-tidy sees
FORGOTTEN_AFTER_S = 90 * 24 * 3600
NOISE = re.compile(r"^\d+ warnings? (treated as errors|generated\.)|^Suppressed \d+|^Use -header-filter")


def read_commands(build):
    """{source: how it is compiled, but for the compiler and what comes out}"""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        words = shlex.split(entry["command"])
        out = words.index("-o")
        del words[out:out + 2]
        words.remove("-c")
        # What runs the compiler may stand before it.
        flags = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
        commands[(pathlib.Path(entry["directory"]) / entry["file"]).resolve()] = flags
    return commands


def fingerprint(source, flags, rules):
    """Of everything that clang-tidy sees; None if the source cannot even be read by the compiler."""
    seen = subprocess.run([COMPILER, "-E", "-CC", "-Wno-everything", *flags], capture_output=True,
                          check=False, cwd=ROOT)
    if seen.returncode != 0:
        return None
    # Wherever the project lies, it is the same.
    text = seen.stdout.replace(str(ROOT).encode(), b"")
    words = " ".join(flags).replace(str(ROOT), "")
    return hashlib.sha256(b"\0".join([rules, words.encode(), str(source).encode(), text])).hexdigest()


def lint(source, flags, rules, build):
    """What there is to say, and whether it is a finding."""
    name = source.relative_to(ROOT)
    known = fingerprint(name, flags, rules)
    stamp = CACHE / known if known else None
    if stamp and stamp.exists():
        stamp.touch()
        return "", False
    done = subprocess.run([TIDY, "--quiet", "-p", str(build), str(source)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, cwd=ROOT)
    said = "\n".join(line for line in done.stdout.splitlines() if line and not NOISE.match(line))
    if done.returncode == 0 and not said and stamp:
        stamp.touch()
    return said, done.returncode != 0


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = read_commands(build)
    sources = [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    if unknown := [str(source) for source in sources if source not in commands]:
        print(f"lint.py: not compiled in {build}: {' '.join(unknown)}", file=sys.stderr)
        return 2
    CACHE.mkdir(parents=True, exist_ok=True)
    for stamp in CACHE.iterdir():
        if stamp.stat().st_mtime < time.time() - FORGOTTEN_AFTER_S:
            stamp.unlink()
    rules = (ROOT / ".clang-tidy").read_bytes() + subprocess.run([TIDY, "--version"], capture_output=True,
                                                                 check=True).stdout
    # The largest first, so that none of them is left over for one processor at the end.
    includes = re.compile(r'#include ["<](boost/|server/|fencekv/client)')
    sources.sort(key=lambda source: -len(includes.findall(source.read_text(encoding="utf-8"))))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for said, is_finding in pool.map(lambda source: lint(source, commands[source], rules, build), sources):
            if said:
                print(said, flush=True)
            failed += is_finding
    print(f"{len(sources)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
