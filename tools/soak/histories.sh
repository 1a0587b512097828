#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes and checks histories of a real server for hours: clients, a bad network, kills, stops, jumps of
# the wall clock. Each run is longer than those of the tests, with a new seed.
#
#   tools/soak/histories.sh                          an hour
#   SOAK_SECONDS=28800 tools/soak/histories.sh       a night
#
# Ends at the first history that no order explains: the test says what does not fit, keeps the history in
# build/soak/, and prints how to check it again.
#
# SOAK_SECONDS (3600), HISTORY_SECONDS (30): how long each history is, SOAK_PRESET (release).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/soak/rounds.sh

preset=${SOAK_PRESET:-release}
build_for_soak "$preset" fencekv_history_tests
tests=$PWD/build/$preset/tests/history/fencekv_history_tests

one_round() {
  FENCEKV_HISTORY_RUNS=1 FENCEKV_HISTORY_SECONDS=${HISTORY_SECONDS:-30} \
    "$tests" --gtest_brief=1 --gtest_filter='LiveHistory.*'
}

run_rounds "${SOAK_SECONDS:-3600}" one_round
