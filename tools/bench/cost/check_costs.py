#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what commands cost with the bounds that are kept, or keeps new ones.

    check_costs.py PROGRAM BOUNDS [--instructions] [--keep] [--jobs N] [--directory DIR] [-- ARGUMENT ...]

PROGRAM is fencekv_bench_cost, BOUNDS the JSON file beside this one. Without --instructions only what
the program counts itself is compared: allocations, bytes asked for, kernel calls, bytes written; they
are the same in every build type. With it, instructions too, counted by callgrind, whose
profiles are left in DIR: only a release build has those that are kept. What follows `--` is passed to
the program.

A figure that is more than a tenth above its bound is a failure, and so is a kind of work without
bounds, and a bound without its work. One that is more than a tenth below is only named: keep new bounds
(--keep, always with --instructions), or the next regression has that much room.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

TOLERANCE = 0.10
# A bound that is this near to what is measured is kept as it is: the file shows what has changed.
NEAR = 0.01

# What is compared, a command, and what it may differ by however small it is: a figure near zero has
# no tenth.
SLACK = {
    "allocations": 0.05,
    "allocated_bytes": 8.0,
    "kernel_calls": 0.02,
    "written_bytes": 1.0,
    "instructions": 20.0,
    "own_instructions": 20.0,
}
COUNTED = ("allocations", "allocated_bytes", "kernel_calls", "written_bytes")
BY_CALLGRIND = ("instructions", "own_instructions")
MEASURED_FUNCTION = "fencekv_bench_measured"


def instructions_of(profile, program):
    """(all, those of the program itself) in a file of callgrind.

    The cost of a call stands in the line after `calls=` and belongs to who is called, where it is
    counted by itself. `ob=` names the object of what follows: the first time in full, later by number.
    """
    names, sums = {}, collections.Counter()
    name, skip = "", False
    for line in profile.splitlines():
        if match := re.match(r"ob=(\(\d+\))(?: (.*))?$", line):
            if match[2]:
                names[match[1]] = match[2]
            name = names[match[1]]
        elif match := re.match(r"cob=(\(\d+\)) (.*)$", line):
            names[match[1]] = match[2]
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"[+*-]|\d", line):
            if not skip:
                sums[name] += int(line.split()[1])
            skip = False
    own = sum(cost for name, cost in sums.items() if pathlib.Path(name).name == program.name)
    return sum(sums.values()), own


def measure_one(options, work):
    """{measure: figure a command} of one kind of work, in a process of its own."""
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="fencekv-cost-") as scratch:
        # Stays: whoever sees that a figure grew wants to know where.
        profile = pathlib.Path(options.directory or scratch, work.replace("/", "-") + ".callgrind")
        command = [str(options.program), work, "--dir", scratch, *options.arguments]
        if options.instructions:
            command = ["valgrind", "--tool=callgrind", "--collect-atstart=no",
                       f"--toggle-collect={MEASURED_FUNCTION}", f"--callgrind-out-file={profile}",
                       *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{work}: exit code {done.returncode}: {done.stderr}")
        totals = json.loads(done.stdout)
        if options.instructions:
            totals["instructions"], totals["own_instructions"] = instructions_of(
                profile.read_text(encoding="utf-8"), options.program)
            if totals["instructions"] == 0:
                raise RuntimeError(f"{work}: callgrind saw nothing of {MEASURED_FUNCTION}()")
    return {measure: totals[measure] / totals["commands"] for measure in measures(options)}


def measures(options):
    return COUNTED + (BY_CALLGRIND if options.instructions else ())


def measure_all(options):
    listed = subprocess.run([options.program, "--list"], capture_output=True, text=True, check=True)
    works = listed.stdout.split()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        return dict(zip(works, pool.map(lambda work: measure_one(options, work), works)))


def shown(figure):
    return f"{figure:.2f}" if figure < 100 else f"{figure:.0f}"


def compare(figures, bounds, options):
    """(failures, notices), a line each."""
    failures, notices = [], []
    for work in sorted(figures.keys() | bounds.keys()):
        if work not in bounds or work not in figures:
            missing = "no bounds" if work not in bounds else "bounds, but it is not measured any more"
            failures.append(f"{work}: there are {missing}")
            continue
        for measure in measures(options):
            figure, bound = figures[work][measure], bounds[work].get(measure)
            if bound is None:
                failures.append(f"{work}: there is no bound for {measure}")
                continue
            room = TOLERANCE * bound + SLACK[measure]
            change = f" ({100 * (figure / bound - 1):+.0f} %)" if bound else ""
            line = f"{work}: {shown(figure)} {measure} a command, kept {shown(bound)}{change}"
            if figure > bound + room:
                failures.append(line)
            elif figure < bound - room:
                notices.append(line)
    return failures, notices


def table(figures, options):
    """All figures, for people."""
    width = max(map(len, figures))
    columns = measures(options)
    yield " " * width + "".join(f"{measure:>18}" for measure in columns)
    for work, costs in figures.items():
        yield f"{work:<{width}}" + "".join(f"{shown(costs[measure]):>18}" for measure in columns)


def new_bounds(figures, old):
    """The figures, but for those that have hardly changed."""

    def choose(figure, bound):
        return bound if bound is not None and abs(figure - bound) <= NEAR * bound else figure

    return {
        work: {
            measure: choose(cost, old.get(work, {}).get(measure))
            for measure, cost in costs.items()
        }
        for work, costs in figures.items()
    }


def as_text(figures):
    """The bounds as JSON, one line a kind of work, so that a change of one is a change of one line."""
    rows = [
        f'  "{work}": ' + json.dumps({measure: round(cost, 3) for measure, cost in costs.items()})
        for work, costs in figures.items()
    ]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("bounds", type=pathlib.Path)
    parser.add_argument("--instructions", action="store_true", help="count instructions too")
    parser.add_argument("--keep", action="store_true", help="write the figures as the new bounds")
    parser.add_argument("--jobs", type=int, default=1, help="how many kinds of work at a time")
    parser.add_argument("--directory", default=None, help="where stores are made")
    parser.add_argument("arguments", nargs="*", help="for the program, after --")
    options = parser.parse_args()
    if options.keep and not options.instructions:
        parser.error("bounds are kept together: --keep needs --instructions")

    try:
        figures = measure_all(options)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    print(*table(figures, options), sep="\n")

    bounds = {}
    if options.bounds.exists():
        bounds = json.loads(options.bounds.read_text(encoding="utf-8"))
    if options.keep:
        options.bounds.write_text(as_text(new_bounds(figures, bounds)), encoding="utf-8")
        print(f"{len(figures)} kinds of work kept in {options.bounds}")
        return 0
    failures, notices = compare(figures, bounds, options)
    for line in notices:
        print(f"less than kept: {line}; tools/bench/cost.sh --keep")
    for line in failures:
        print(f"FAILED: {line}")
    print(f"{len(figures)} kinds of work, {len(failures)} figures above their bounds, "
          f"{len(notices)} below")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
