# SPDX-License-Identifier: Apache-2.0
"""run_cost.py FOLDER PROGRAM: no command costs more than what is kept in FOLDER/bounds.json.

And the comparison is worth something only if it fails where it should: a regression put in on purpose
must be found in every kind of work, and so must bounds that are missing or that belong to nothing.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

# More than a tenth of what any kind of work allocates.
WASTED = 8
MISSING, LOOSE, UNKNOWN = "store/read/1", "server/read/1", "store/unheard-of/1"


def check(folder, program, bounds, *arguments):
    done = subprocess.run(
        [sys.executable, "-B", folder / "check_costs.py", program, bounds, "--", *arguments],
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def found(said, begin, work, what):
    return any(line.startswith(f"{begin}: {work}: ") and what in line for line in said.splitlines())


def main(folder, program):
    kept = pathlib.Path(folder, "bounds.json")
    code, said = check(pathlib.Path(folder), program, kept)
    assert code == 0, f"a command costs more than is kept, or could not be measured:\n{said}"

    bounds = json.loads(kept.read_text(encoding="utf-8"))
    bounds[UNKNOWN] = bounds.pop(MISSING)
    bounds[LOOSE]["allocated_bytes"] *= 2
    with tempfile.TemporaryDirectory() as directory:
        changed = pathlib.Path(directory, "bounds.json")
        changed.write_text(json.dumps(bounds), encoding="utf-8")
        code, said = check(pathlib.Path(folder), program, changed, "--waste", str(WASTED))
    assert code == 1, f"exit code {code}:\n{said}"
    for work in bounds:
        what = "it is not measured any more" if work == UNKNOWN else "allocations a command"
        assert found(said, "FAILED", work, what), f"{work} is not found:\n{said}"
    assert found(said, "FAILED", MISSING, "no bounds"), f"what has no bounds is not found:\n{said}"
    assert found(said, "less than kept", LOOSE, "allocated_bytes"), f"loose bounds are not named:\n{said}"


main(*sys.argv[1:])
