#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The simulation for as long as it takes: many lives of a whole store, each under a new seed.
#
#     tools/soak/simulate.sh BUILD_DIR [SEEDS] [PROCESSES]
#
# 100,000 seeds and one process a core unless told otherwise. A failure prints its seed and how to
# live that life again; the others go on. Exit code 1 if there was one.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 3 ]]; then
  sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
tests="$1/tests/simulation/fencekv_simulation_tests"
seeds="${2:-100000}"
processes="${3:-$(nproc)}"
if [[ ! -x "$tests" ]]; then
  echo "$tests is not there: build the target fencekv_simulation_tests first" >&2
  exit 2
fi

# An equal part each, rounded up.
share=$(((seeds + processes - 1) / processes))
running=()
for ((i = 0; i < processes; ++i)); do
  FENCEKV_SEEDS="$share" "$tests" --gtest_filter='Part/SimulationTest.*/0' --gtest_brief=1 &
  running+=($!)
done
failed=0
for process in "${running[@]}"; do
  wait "$process" || failed=1
done
exit "$failed"
