#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the faults of mutants.toml into the sources, one at a time, and expects that the suite named
beside each fails. A fault that no test sees is a promise that no test keeps.

    run.py                    all of them
    run.py NAME...            these
    run.py --suite contract   those of one suite; several are allowed
    run.py --check            only that the table fits the sources; takes no time
    run.py --list             what there is

    --revision REV   of this revision instead of the files as they are
    --work DIR       builds there and leaves it behind, so that the next run begins where this one ended
    --table FILE     writes the outcome as a table of Markdown
    --jobs N         compilers at once (2)

Works on a copy in a temporary directory; the working tree is not touched. Each program first has to
pass without a fault, so that no test that always fails counts. Exit code: 0 if all were caught, 1 if
one survived, 2 if the table is wrong.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = Path(__file__).resolve().parent / "mutants.toml"
# Fewer would not show much.
FEWEST = 40
# A program that has not ended by then hangs, and that is noticed, too.
LONGEST_S = 180


class Wrong(Exception):
    """The table does not fit the sources."""


class Mutant:
    def __init__(self, entry):
        self.name, self.promise, self.suite = entry["name"], entry["promise"], entry["suite"]
        self.only = entry.get("only", "*")
        own = [entry] if "file" in entry else []
        self.edits = [(e["file"], e["old"], e["new"]) for e in own + entry.get("edit", [])]

    def problems(self, tree):
        if not self.edits:
            yield "it changes nothing"
        for file, old, new in self.edits:
            path = tree / file
            if not path.is_file():
                yield f"{file} does not exist"
                continue
            count = path.read_text().count(old)
            if count != 1:
                yield f"its text occurs {count} times in {file}: {old.strip().splitlines()[0]!r} …"
            if old == new:
                yield f"the texts for {file} are the same"

    @contextlib.contextmanager
    def applied(self, tree):
        before = {}
        for file, old, new in self.edits:
            text = (tree / file).read_text()
            before.setdefault(file, text)
            if text.count(old) != 1:
                raise Wrong(f"{self.name}: its text is not found once in {file}")
            (tree / file).write_text(text.replace(old, new))
        try:
            yield
        finally:
            for file, text in before.items():
                (tree / file).write_text(text)


def read_table():
    table = tomllib.loads(TABLE.read_text())
    return table["suite"], [Mutant(entry) for entry in table["mutant"]]


def check(suites, mutants, tree):
    """All that is wrong with the table."""
    problems = []
    if len(mutants) < FEWEST:
        problems.append(f"{len(mutants)} mutants; at least {FEWEST} are wanted")
    names = [mutant.name for mutant in mutants]
    problems += [f"{name}: twice in the table" for name in sorted({n for n in names if names.count(n) > 1})]
    for mutant in mutants:
        if mutant.suite not in suites:
            problems.append(f"{mutant.name}: there is no suite {mutant.suite}")
        problems += [f"{mutant.name}: {problem}" for problem in mutant.problems(tree)]
    return problems


class House:
    """A copy of the sources, and what is built of it."""

    def __init__(self, folder, suites, jobs):
        self.tree, self.build, self.suites, self.jobs = folder / "tree", folder / "build", suites, jobs
        self.environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}

    def copy(self, revision):
        git = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
        self.tree.mkdir(parents=True, exist_ok=True)
        if revision:
            names = subprocess.run([*git, "ls-tree", "-r", "-z", "--name-only", revision], check=True,
                                   capture_output=True).stdout.decode().split("\0")
        else:
            names = subprocess.run([*git, "ls-files", "-coz", "--exclude-standard"], check=True,
                                   capture_output=True).stdout.decode().split("\0")
        kept = set()
        for name in filter(None, names):
            if revision:
                content = subprocess.run([*git, "show", f"{revision}:{name}"], check=True,
                                         capture_output=True).stdout
            elif (ROOT / name).is_file():
                content = (ROOT / name).read_bytes()
            else:
                continue
            kept.add(name)
            copy = self.tree / name
            # What is the same stays as it is, and need not be built again.
            if copy.is_file() and copy.read_bytes() == content:
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
        for copy in [p for p in self.tree.rglob("*") if p.is_file()]:
            if str(copy.relative_to(self.tree)) not in kept:
                copy.unlink()

    def call(self, words, **options):
        return subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False, **options)

    def configure(self):
        # Programs are found by their paths, not by ctest; debugging information only makes links slow;
        # and a fault in the rules shows in an embedded store as well as over the network.
        done = self.call(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja",
                          "-DCMAKE_BUILD_TYPE=Debug", "-DFENCEKV_WERROR=OFF",
                          "-DFENCEKV_WITHOUT_NETWORK_WORLD=ON",
                          "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--strip-debug",
                          "-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST"])
        if done.returncode != 0:
            raise Wrong(f"cmake failed:\n{done.stdout[-3000:]}")

    def make(self, suites):
        targets = sorted({target for suite in suites for target in self.suites[suite]["targets"]})
        return self.call(["ninja", "-C", str(self.build), f"-j{self.jobs}", *targets])

    def run(self, suite, only):
        """How the program ended: (0 if all is well, output)."""
        known = self.suites[suite]
        program = self.build / known["program"]
        environment = {**self.environment, **known.get("environment", {}), "GTEST_COLOR": "no"}
        # A group of its own, so that what hangs goes with all that it has started.
        with subprocess.Popen([program, f"--gtest_filter={only}", "--gtest_fail_fast"], env=environment,
                              cwd=program.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=LONGEST_S)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return -signal.SIGKILL, output


def by_whom(code, output):
    """The test that failed first."""
    failed = re.search(r"^\[  FAILED  \] (\S+)", output, re.MULTILINE)
    if failed:
        return failed.group(1).rstrip(",")
    running = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{running[-1] if running else 'the program'} ({how})"


def examine(house, mutants):
    """Yields (mutant, caught, by whom, seconds)."""
    sound = {}
    for number, mutant in enumerate(mutants, 1):
        began = time.monotonic()
        what = (mutant.suite, mutant.only)
        if what not in sound:
            if (made := house.make([mutant.suite])).returncode != 0:
                raise Wrong(f"{mutant.suite} cannot be built without a fault:\n{made.stdout[-3000:]}")
            code, output = house.run(*what)
            if code != 0 or not re.search(r"^\[  PASSED  \] [1-9]", output, re.MULTILINE):
                raise Wrong(f"{mutant.suite} with {mutant.only} fails without a fault, or runs nothing:\n"
                            f"{output[-3000:]}")
            sound[what] = True
            began = time.monotonic()
        with mutant.applied(house.tree):
            made = house.make([mutant.suite])
            if made.returncode != 0:
                raise Wrong(f"{mutant.name} cannot be built:\n{made.stdout[-3000:]}")
            code, output = house.run(*what)
        seconds = time.monotonic() - began
        caught = code != 0
        whom = by_whom(code, output) if caught else ""
        print(f"{number:3}/{len(mutants)} {'caught  ' if caught else 'SURVIVED'} {seconds:4.0f} s  "
              f"{mutant.name}  {whom}", flush=True)
        yield mutant, caught, whom, seconds


def as_markdown(outcomes):
    lines = ["| fault | promise | suite | caught by | s |", "|---|---|---|---|---|"]
    for mutant, caught, whom, seconds in outcomes:
        lines.append(f"| {mutant.name} | {mutant.promise} | {mutant.suite} | "
                     f"{f'`{whom}`' if caught else '**survived**'} | {seconds:.0f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(add_help=True, usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--revision")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()

    suites, mutants = read_table()
    if asked.list:
        for mutant in mutants:
            print(f"{mutant.name:36} {mutant.suite:12} {mutant.promise}")
        return 0
    if asked.check:
        problems = check(suites, mutants, ROOT)
        print("\n".join(problems) if problems else f"{len(mutants)} mutants fit the sources")
        return 2 if problems else 0

    if unknown := set(asked.names) - {mutant.name for mutant in mutants}:
        print(f"no such mutant: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [m for m in mutants if (not asked.names or m.name in asked.names)
              and (not asked.suite or m.suite in asked.suite)]
    # One program after the other.
    chosen.sort(key=lambda mutant: list(suites).index(mutant.suite))

    with contextlib.ExitStack() as stack:
        folder = asked.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencekv-mutants-")))
        house = House(folder.resolve(), suites, asked.jobs)
        outcomes = []
        try:
            house.copy(asked.revision)
            if problems := [p for m in chosen for p in m.problems(house.tree)]:
                raise Wrong("the table does not fit:\n" + "\n".join(problems))
            house.configure()
            for outcome in examine(house, chosen):
                outcomes.append(outcome)
        except Wrong as wrong:
            print(wrong, file=sys.stderr)
            return 2
        finally:
            if asked.table and outcomes:
                asked.table.write_text(as_markdown(outcomes))

    survivors = [mutant.name for mutant, caught, _, _ in outcomes if not caught]
    print(f"{len(outcomes) - len(survivors)} caught, {len(survivors)} survived"
          + (f": {', '.join(survivors)}" if survivors else ""))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
