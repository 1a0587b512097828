#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the transactions that the demo settles: the same bytes for the same seed, everywhere.

    generate_transactions.py --seed 123 --rows rows.csv --late late.csv

rows.csv is what has arrived when worker A starts: 40,000 rows of settlement 123, and 5,000 of its
neighbours in between. late.csv is what arrives while A is frozen: 250 more rows of settlement 123,
refunds mostly. A summary made without them is wrong.
"""

import argparse
import random

HEADER = "transaction,settlement,merchant,kind,amount_cents\n"
SETTLEMENT = 123


def row(source, number, settlement, refund_share):
    kind = "refund" if source.random() < refund_share else "sale"
    # Amounts as in a shop: many small ones, few large ones.
    amount = 100 + int(source.paretovariate(1.3) * 900)
    return (f"t{number:07d},{settlement},m{source.randrange(400):03d},{kind},"
            f"{min(amount, 2_500_000)}\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seed", type=int, default=SETTLEMENT)
    arguments.add_argument("--rows", required=True, help="file to write: what A finds")
    arguments.add_argument("--late", required=True, help="file to write: what comes while A is frozen")
    chosen = arguments.parse_args()

    source = random.Random(chosen.seed)
    settlements = [SETTLEMENT] * 40_000
    settlements += [source.choice((SETTLEMENT - 1, SETTLEMENT + 1)) for _ in range(5_000)]
    source.shuffle(settlements)
    with open(chosen.rows, "w", encoding="ascii") as out:
        out.write(HEADER)
        for number, settlement in enumerate(settlements):
            out.write(row(source, number, settlement, 0.04))
    with open(chosen.late, "w", encoding="ascii") as out:
        for number in range(250):
            out.write(row(source, 1_000_000 + number, SETTLEMENT, 0.8))


if __name__ == "__main__":
    main()
