#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same load on stores of more and more keys with the same memory, which holds a tenth of the largest:
# whether the curve has a cliff.
#
#   tools/bench/many_keys.sh                                     three small ones: about a minute
#   KEYS='1000000 5000000 20000000' SECONDS=10 ROUNDS=5 tools/bench/many_keys.sh
#                                                                some 20 minutes, 10 GB of disk
#
# The stores are filled first, each by a server of its own, and these stay: then the load goes to one
# after the other, round by round (ROUNDS: 3, SECONDS a run: 2), so that the ratios are of runs that were
# seconds apart. DURABILITY (process) is that of the writes, VALUE_BYTES (100) their length. Each server
# has the same --memory-budget: MEMORY_BUDGET (bytes), or what has room for the fences of a tenth of the
# largest store's keys, and as much again for records and for blocks. What the system caches of the files
# is not counted.
#
# Builds the preset `release` unless SERVER and LOAD name programs. The stores are below BENCH_DIR
# (build/release/bench); the table, and the figures as JSON, go to RESULTS (tools/bench/results). The exit
# code is 0 if all replies were right.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/steps.sh
. tools/bench/servers.sh

read -ra counts <<<"${KEYS:-100000 200000 400000}"
rounds=${ROUNDS:-3}
run_seconds=$(given_seconds 2)
durability=${DURABILITY:-process}
value_bytes=${VALUE_BYTES:-100}
results=${RESULTS:-tools/bench/results}

# budget COUNT: of which the fences of a tenth of that many keys are a third, less the memtables; see
# engine/core/memory_shares.h. A key of 16 bytes counts as 144: FenceCache::kKeyBytes and the key.
budget() {
  local most_memtables=$((64 * 1024 * 1024)) least=$((64 * 1024 * 1024)) fences=$(($1 * 144 / 10)) bytes
  bytes=$((3 * fences + (fences < most_memtables ? fences : most_memtables)))
  echo "$((bytes < least ? least : bytes))"
}
memory_budget=${MEMORY_BUDGET:-$(budget "$(printf '%s\n' "${counts[@]}" | sort -n | tail -n 1)")}

find_programs
server_pid=
declare -A server_pids=() ports=()
stop_servers() {
  local process
  for process in "${server_pids[@]}" ${server_pid:+"$server_pid"}; do
    kill "$process" 2>/dev/null || true
    wait "$process" 2>/dev/null || true
  done
}
make_scratch keys

start_server() {
  start_fencekv "$1" --durability "$durability" --memory-budget "$memory_budget"
  server_pids[$1]=$server_pid
  ports[$1]=$port
}

# load COUNT arguments...
load() {
  local count=$1
  shift
  "$load_program" --target fencekv --port "${ports[$count]}" --server-pid "${server_pids[$count]}" \
    --keys "$count" --value-bytes "$value_bytes" "$@" </dev/null
}

written_by() { sed -n 's/^wchar: //p' "/proc/${server_pids[$1]}/io"; }

# Until the server writes nothing any more: what filling left to compact is done.
settle() {
  local before now i
  before=$(written_by "$1")
  for ((i = 0; i < 300; i++)); do
    sleep 2
    now=$(written_by "$1")
    # A little is always written: the position of the store.
    if ((now - before < 65536)); then return; fi
    before=$now
  done
}

runs=$scratch/runs.jsonl
# note ROUND COUNT WORKLOAD CONNECTIONS PIPELINE OUTCOME
note() {
  local resident
  resident=$(sed -nE 's/^VmRSS:\s*([0-9]+) kB/\1/p' "/proc/${server_pids[$2]}/status")
  printf '{"round":%d,"keys":%d,"workload":"%s","connections":%d,"pipeline":%d,"resident_kib":%d,"load":%s}\n' \
    "$1" "$2" "$3" "$4" "$5" "$resident" "$6" >>"$runs"
}

for count in "${counts[@]}"; do
  start_server "$count"
  began=$SECONDS
  outcome=$(load "$count" --workload write --distribution once --operations "$count" \
    --connections 50 --pipeline 16) || fail "$count keys: $outcome"
  note 0 "$count" fill 50 16 "$outcome"
  settle "$count"
  echo "== $count keys: filled and compacted within $((SECONDS - began)) s"
done

shapes=('write 50 1' 'write 50 16' 'get 50 1' 'get 50 16')
for ((round = 1; round <= rounds; round++)); do
  for shape in "${shapes[@]}"; do
    read -r workload connections pipeline <<<"$shape"
    echo "== round $round of $rounds: $workload ${connections}x$pipeline: ${counts[*]} keys"
    # Every other round backwards: what comes first finds another machine than what comes last.
    order=("${counts[@]}")
    if ((round % 2 == 0)); then mapfile -t order < <(printf '%s\n' "${order[@]}" | tac); fi
    for count in "${order[@]}"; do
      outcome=$(load "$count" --workload "$workload" --connections "$connections" \
        --pipeline "$pipeline" --seconds "$run_seconds" \
        --warm-up "$(python3 -c "print($run_seconds / 4)")" --seed "$round") ||
        fail "$count keys, $workload ${connections}x$pipeline: $outcome"
      note "$round" "$count" "$workload" "$connections" "$pipeline" "$outcome"
    done
  done
done

python3 -B tools/bench/many_keys_report.py "$runs" --results "$results" --directory "$scratch" \
  --value-bytes "$value_bytes" --seconds "$run_seconds" --memory-budget "$memory_budget" \
  --durability "$durability" \
  --command "KEYS='${counts[*]}' ROUNDS=$rounds SECONDS=$run_seconds DURABILITY=$durability \
VALUE_BYTES=$value_bytes MEMORY_BUDGET=$memory_budget tools/bench/many_keys.sh"
