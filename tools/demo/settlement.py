# SPDX-License-Identifier: Apache-2.0
"""What both Python workers do alike: read the rows of a settlement and sum them up."""

import csv
import sys


def say(text):
    """One line to whoever started the worker, at once: it decides what happens next by it."""
    print(text, flush=True)


def summarise(path, settlement, worker):
    """The summary of `settlement` ("settlement:123") as the text that is saved."""
    number = settlement.split(":")[1]
    rows = sales = refunds = 0
    with open(path, encoding="ascii", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["settlement"] != number:
                continue
            rows += 1
            if row["kind"] == "refund":
                refunds += int(row["amount_cents"])
            else:
                sales += int(row["amount_cents"])
    return (f"rows={rows} sales={sales} refunds={refunds} net={sales - refunds} by={worker}")


def wait_before_saving(summary):
    """Where a real worker would be frozen by its machine: says so, and waits for a line."""
    say(f"computed, about to save: {summary}")
    sys.stdin.readline()
