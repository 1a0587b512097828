#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills the embedded store and the real server for hours, at random moments, and looks each time whether
# everything that was acknowledged is there.
#
#   tools/soak/kill.sh                        an hour
#   SOAK_SECONDS=28800 tools/soak/kill.sh     a night
#
# Ends at the first loss; FENCEKV_CRASH_SEED in the output gives the same decisions again.
#
# SOAK_SECONDS (3600), SOAK_KILLS (400): how many kills a round has, SOAK_PRESET (release).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/soak/rounds.sh

preset=${SOAK_PRESET:-release}
build_for_soak "$preset" fencekv_crash_tests
tests=$PWD/build/$preset/tests/crash/fencekv_crash_tests

one_round() {
  FENCEKV_CRASH_KILLS=${SOAK_KILLS:-400} "$tests" --gtest_brief=1 --gtest_filter='*Kill*'
}

run_rounds "${SOAK_SECONDS:-3600}" one_round
