#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets every call of the disk fail once, in every scenario, and damages every byte of a small store.
#
#   tools/soak/faults.sh BUILD           e.g. build/release; its programs are built first
#   tools/soak/faults.sh BUILD 'DamageSweep.*'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if (($# < 1 || $# > 2)); then
  echo "usage: tools/soak/faults.sh BUILD [FILTER]" >&2
  exit 2
fi
cmake --build "$1" --target fencekv_faults_tests
FENCEKV_EVERY=1 "$1/tests/faults/fencekv_faults_tests" --gtest_filter="${2-*}"
