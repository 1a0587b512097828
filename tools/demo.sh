#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows what fencekv is for: a worker that was frozen past its lease cannot overwrite its successor's
# result, and the same story the usual way, where it does. Installs and builds what is missing, then
# takes about ten seconds. Needs no other step on Debian 12.
#
# The exit code is 0 only if fencekv refused the late worker and the usual way lost data.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/steps.sh

./tools/setup.sh demo

step "configure" cmake --preset dev
step "build (some minutes the first time)" \
  cmake --build --preset dev --target fencekv-server settlement_worker
mkdir -p build/demo
step "generate the transactions" /usr/bin/python3 tools/demo/generate_transactions.py \
  --seed 123 --rows build/demo/rows.csv --late build/demo/late.csv

exec /usr/bin/python3 tools/demo/settlement_story.py \
  --server build/dev/server/fencekv-server --worker build/dev/tools/demo/settlement_worker \
  --rows build/demo/rows.csv --late build/demo/late.csv </dev/null
