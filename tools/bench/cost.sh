#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a command costs in instructions, allocations, kernel calls and bytes written, compared with what
# is kept in tools/bench/cost/bounds.json. The same figures on a machine that is busy and on one that is
# not: a regression shows that no time could.
#
#   tools/bench/cost.sh          compares; the exit code is 1 if a figure is a tenth above its bound
#   tools/bench/cost.sh --keep   keeps what is measured as the new bounds
#
# Builds the preset `release` first, and needs valgrind (tools/setup.sh check installs it). The figures
# are of a thread that does everything itself: what a thread hands to another, and waits, are not in
# them. own_instructions are those of the program itself: engine, server, Asio; the rest is RocksDB, the
# allocator and the C library. Own ones and what is counted are the same to the digit in every run; all
# together differ by up to 4 %, nearly all of it in malloc() and free().
# BENCH_DIR (build/release/bench) is where the stores are made, and where the profiles are left:
#
#   callgrind_annotate build/release/bench/store-write-1.callgrind
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/steps.sh

if (($# > 1)) || [[ ${1:---keep} != --keep ]]; then
  echo "usage: tools/bench/cost.sh [--keep]" >&2
  exit 2
fi
if ! command -v valgrind >/dev/null; then
  echo "no valgrind: tools/setup.sh check installs it" >&2
  exit 2
fi

step "configure" cmake --preset release >/dev/null
step "build" cmake --build --preset release --target fencekv_bench_cost
directory=${BENCH_DIR:-build/release/bench}
mkdir -p "$directory"
/usr/bin/python3 -B tools/bench/cost/check_costs.py \
  build/release/tools/bench/cost/fencekv_bench_cost tools/bench/cost/bounds.json \
  --instructions --jobs "$(nproc)" --directory "$directory" "$@"
