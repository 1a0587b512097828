#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs conformance.json through one real client against a real server.

    run_conformance.py --server FENCEKV-SERVER --protocol 2|3 -- DRIVER [ARGUMENTS]

The driver is a small program around the client under test. It is started with HOST PORT PROTOCOL
behind its arguments, connects, and then answers each line of its standard input, a JSON array of
strings (a command), with one line: {"reply": ...} as the client hands it to its user, or {"error":
"the text as the client hands it to its user"}. An error within an array is a string, error:TEXT.
Bytes travel as the characters U+0000 to U+00FF. What to send and what to expect is decided here, once
for all clients.

A driver that exits with 77 has no client to test: the test is skipped, with the driver's reason.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from live_server import SKIPPED, live_server, skip

CASES = Path(__file__).resolve().parent / "conformance.json"


def matches(expected, actual, protocol, known):
    """Whether `actual` is what conformance.json expects; see its "reading" for the notation."""
    if isinstance(expected, dict):
        if protocol == 2:
            flat = [part for pair in expected.items() for part in pair]
            return matches(flat, actual, protocol, known)
        return (isinstance(actual, dict) and list(actual) == list(expected)
                and all(matches(expected[k], actual[k], protocol, known) for k in expected))
    if isinstance(expected, list):
        return (isinstance(actual, list) and len(actual) == len(expected)
                and all(matches(e, a, protocol, known) for e, a in zip(expected, actual)))
    if isinstance(expected, str) and expected.startswith("<"):
        if bounds := re.fullmatch(r"<(\d+) to (\d+)>", expected):
            return type(actual) is int and int(bounds[1]) <= actual <= int(bounds[2])
        if rest := re.fullmatch(r"<has (.*)>", expected, re.DOTALL):
            return isinstance(actual, str) and rest[1] in actual
        if saved := re.fullmatch(r"<token (\w+)>", expected):
            if not isinstance(actual, str) or not re.fullmatch(r"[1-9]\d*", actual):
                return False
            known[saved[1]] = actual
            return True
        if expected == "<any>":
            return True
        raise ValueError(f"conformance.json: unknown notation {expected}")
    if isinstance(expected, str) and expected.startswith("$"):
        expected = known[expected[1:]]
    return type(actual) is type(expected) and actual == expected


def filled(word, known):
    """`$name` becomes the token that was saved under that name, `$name+1` the number above it."""
    if found := re.fullmatch(r"\$(\w+?)(?:([+-])(\d+))?", word):
        number = int(known[found[1]])
        if found[2]:
            number += int(found[2] + found[3])
        return str(number)
    return word


def run_case(case, ask, protocol, known):
    """Sends one case. Returns what is wrong with the answer, or None."""
    answer = ask([filled(word, known) for word in case["send"]])
    if "error" in case and f"resp{protocol}" not in case:
        wanted = re.sub(r"\$\w+", lambda m: filled(m[0], known), case["error"])
        text = answer.get("error")
        # Clients strip a leading `ERR `, and some name themselves in front.
        if text is not None and any(wanted == text[:len(wanted)] or f" {wanted}" in text
                                    for wanted in {wanted, wanted.removeprefix("ERR ")}):
            return None
        return f"expected the error '{wanted}…', got {json.dumps(answer)}"
    expected = case.get(f"resp{protocol}", case.get("reply"))
    if "reply" in answer and matches(expected, answer["reply"], protocol, known):
        return None
    return f"expected {json.dumps(expected)}, got {json.dumps(answer)}"


def run_all(ask, protocol, client):
    document = json.loads(CASES.read_text(encoding="utf-8"))
    known, wrong, ran = {}, 0, 0
    for case in document["cases"]:
        if client in case.get("not_for", {}):
            print(f"not for {client}: {' '.join(case['send'])}: {case['not_for'][client]}")
            continue
        ran += 1
        if problem := run_case(case, ask, protocol, known):
            wrong += 1
            print(f"WRONG {json.dumps(case['send'])} ({case['shows']}): {problem}")
    print(f"{client}, RESP{protocol}: {ran - wrong} of {ran} cases as expected")
    return 1 if wrong or ran == 0 else 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--server", required=True)
    arguments.add_argument("--protocol", type=int, choices=(2, 3), required=True)
    arguments.add_argument("--client", required=True, help="its name in not_for of conformance.json")
    arguments.add_argument("--needs", help="a folder without which there is nothing to test")
    arguments.add_argument("driver", nargs=argparse.REMAINDER)
    chosen = arguments.parse_args()
    if not shutil.which(chosen.driver[0]):
        skip(f"{chosen.driver[0]} is not installed")
    if chosen.needs and not Path(chosen.needs).is_dir():
        skip(f"{chosen.needs} is not there: npm did not install it")

    with live_server(chosen.server) as (host, port, _):
        driver = subprocess.Popen([*chosen.driver, host, str(port), str(chosen.protocol)], text=True,
                                  encoding="utf-8", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def ask(words):
            try:
                driver.stdin.write(json.dumps(words) + "\n")
                driver.stdin.flush()
            except BrokenPipeError:
                pass  # It has ended; what it said and its exit code tell why.
            line = driver.stdout.readline()
            if not line.startswith("{"):
                rest = line + driver.stdout.read()
                code = driver.wait(timeout=30)
                print(f"the driver ended with {code}: {rest.strip()}")
                sys.exit(SKIPPED if code == SKIPPED else 1)
            return json.loads(line)

        try:
            code = run_all(ask, chosen.protocol, chosen.client)
            driver.stdin.close()
            if driver.wait(timeout=30) != 0:
                print(f"the driver ended with {driver.returncode}")
                code = 1
        finally:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
    return code


if __name__ == "__main__":
    sys.exit(main())
