#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The embedded store against raw RocksDB, in the same process and with the same database options:
#
#   tools/bench/embedded.sh                                 all: about 4 minutes
#   tools/bench/embedded.sh --rows 'write, .* sync'         only the rows that match the expression
#   tools/bench/embedded.sh --keys 5000000                  more keys than fences in memory
#   tools/bench/embedded.sh --repetitions 2 --seconds 0.02  whether it works
#
# Installs Google Benchmark (libbenchmark-dev) with apt if it is not there, builds the preset `release`,
# and leaves a table and the figures as JSON in tools/bench/results/ (RESULTS=DIR: there). BENCH_DIR
# (build/release/bench) must be on the disk that is to be measured. The exit code is 0 if everything
# was answered as it must be, whatever the figures are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/steps.sh

if [[ ! -e /usr/include/benchmark/benchmark.h ]]; then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  step "install libbenchmark-dev" "${as_root[@]}" sh -c \
    'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libbenchmark-dev' >&2
fi
step "configure" cmake --preset release >/dev/null
step "build" cmake --build --preset release --target fencekv_bench_embedded >/dev/null
directory=${BENCH_DIR:-build/release/bench}
mkdir -p "$directory"
/usr/bin/python3 -B tools/bench/embedded/compare_sides.py \
  build/release/tools/bench/embedded/fencekv_bench_embedded --directory "$directory" \
  --results "${RESULTS:-tools/bench/results}" "$@"
