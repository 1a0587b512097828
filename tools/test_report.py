#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What there is to say of a report by `ctest --output-junit`: the slowest tests, why some were skipped, the
failed ones with the end of what they said, and last `N passed, N failed, N skipped`.

    test_report.py build/dev/junit.xml

A test is failed, too, that was skipped because what stands before it failed: GoogleTest then says "Skipped", and
ctest believes it. Exit code: 0, or 1 if a test failed or none ran.
"""

import re
import sys
import xml.etree.ElementTree

KEPT_LINES = 40
SLOW_S = 10
# What no XML may hold, but a test may say.
UNSPEAKABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&#(x[0-9a-fA-F]+|[0-9]+);")


def read_tests(report):
    with open(report, encoding="utf-8", errors="replace") as file:
        text = UNSPEAKABLE.sub("?", file.read())
    return list(xml.etree.ElementTree.fromstring(text).iter("testcase"))


def said_by(test):
    return (test.findtext("system-out") or "").splitlines()


def is_skipped(test):
    return test.get("status") in ("notrun", "disabled")


def has_failed(test):
    if is_skipped(test):
        return any(line.endswith(": Failure") for line in said_by(test))
    return test.get("status") == "fail"


def why_skipped(test):
    """The lines between what GoogleTest says of the place and of the end."""
    lines = said_by(test)
    start = next((i for i, line in enumerate(lines) if line.endswith(": Skipped")), None)
    if start is None:
        return " ".join(lines[-1:])
    reason = []
    for line in lines[start + 1:]:
        if line.startswith("[  SKIPPED ]"):
            break
        reason.append(line.strip())
    return " ".join(filter(None, reason))


def main() -> int:
    (report,) = sys.argv[1:]
    tests = read_tests(report)
    seconds = {test: float(test.get("time", 0)) for test in tests}
    failed = [test for test in tests if has_failed(test)]
    skipped = [test for test in tests if is_skipped(test) and not has_failed(test)]

    for test in sorted(tests, key=seconds.get, reverse=True)[:10]:
        if seconds[test] >= SLOW_S:
            print(f"slow: {seconds[test]:.0f} s  {test.get('name')}")
    for test in skipped:
        print(f"skipped: {test.get('name')}: {why_skipped(test)}")
    for test in failed:
        lines = said_by(test)
        print(f"== failed: {test.get('name')}, after {seconds[test]:.1f} s")
        if len(lines) > KEPT_LINES:
            print(f"   ({len(lines) - KEPT_LINES} lines before)")
        for line in lines[-KEPT_LINES:]:
            print(f"   {line}")
    print(f"{len(tests) - len(failed) - len(skipped)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
