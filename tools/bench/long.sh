#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes for a long time, with flushes and compactions going on: whether throughput and latency stay flat,
# and how much is written and stored for what the user wrote.
#
#   tools/bench/long.sh              one minute, after some two to fill 5 M keys: to try it
#   tools/bench/long.sh 30           what the promise is about
#   RATE=20000 tools/bench/long.sh 10      an open loop: what a service sees that is not at its limit
#   DURABILITY=process PIPELINE=1 tools/bench/long.sh 10
#
# KEYS (5000000), VALUE_BYTES (100), CONNECTIONS (50), PIPELINE (16), DURABILITY (sync), READ_SHARE (0, of
# 1), RATE (a closed loop) and WINDOW (10, seconds) are the load; SERVER_ARGUMENTS goes to the server.
# Without RATE the load is as much as the server takes, and the latency that of a server at its limit.
#
# Prints a line for each window as it ends, and a summary; both, the figures as JSON and a plot go to
# RESULTS (tools/bench/results). Builds the preset `release` unless SERVER and LOAD name programs. The
# store is below BENCH_DIR (build/release/bench). The exit code is 0 if all replies were right.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/steps.sh
. tools/bench/servers.sh

minutes=${1:-1}
if ! [[ $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]]; then
  echo "usage: tools/bench/long.sh [MINUTES]" >&2
  exit 2
fi
keys=${KEYS:-5000000}
value_bytes=${VALUE_BYTES:-100}
connections=${CONNECTIONS:-50}
pipeline=${PIPELINE:-16}
durability=${DURABILITY:-sync}
read_share=${READ_SHARE:-0}
window=${WINDOW:-10}
results=${RESULTS:-tools/bench/results}
read -ra server_arguments <<<"${SERVER_ARGUMENTS:-}"

find_programs
server_pid=
stop_servers() {
  [[ -n $server_pid ]] || return 0
  kill "$server_pid" 2>/dev/null || true
  wait "$server_pid" 2>/dev/null || true
}
make_scratch long
start_fencekv store --durability "$durability" "${server_arguments[@]}"

load() {
  "$load_program" --target fencekv --workload write --port "$port" --server-pid "$server_pid" \
    --keys "$keys" --value-bytes "$value_bytes" --connections "$connections" "$@" </dev/null
}

# Every key once, so that a write of the run changes what is there; compaction goes on into the run.
fill() {
  load --distribution once --operations "$keys" --pipeline 16 >"$scratch/fill.log"
}
step "fill $keys keys" fill || fail "the store could not be filled"

more=()
if [[ -n ${RATE:-} ]]; then more+=(--rate "$RATE"); fi
seconds=$(python3 -c "print($minutes * 60)")
# shellcheck disable=SC2016  # inside the double quotes it is expanded
command="KEYS=$keys VALUE_BYTES=$value_bytes CONNECTIONS=$connections PIPELINE=$pipeline \
DURABILITY=$durability READ_SHARE=$read_share${RATE:+ RATE=$RATE} WINDOW=$window\
${SERVER_ARGUMENTS:+ SERVER_ARGUMENTS='$SERVER_ARGUMENTS'} tools/bench/long.sh $minutes"
echo "== $minutes minutes of load"
load --pipeline "$pipeline" --read-share "$read_share" --seconds "$seconds" --window "$window" \
  "${more[@]}" | python3 -B tools/bench/long_report.py --store "$scratch/store" \
  --server-pid "$server_pid" --results "$results" --command "$command"
