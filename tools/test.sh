#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds everything (preset dev, in build/dev) and runs every test.
#
#   tools/test.sh [arguments for ctest, for example -L unit]
#
# The last line is `N passed, N failed, N skipped`; the exit code is 0 only if nothing failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/steps.sh

./tools/setup.sh test

step "configure" cmake --preset dev
step "build (a cold build takes some minutes)" cmake --build --preset dev
run_tests dev "$@"
