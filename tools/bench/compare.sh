#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# This server against Redis, PostgreSQL, etcd and the disk itself on the same work and the same
# durability, in alternating rounds:
#
#   tools/bench/compare.sh                          7 rounds of 4 s a run: about 50 minutes
#   ROUNDS=1 SECONDS=1 tools/bench/compare.sh       whether it works: about 3 minutes
#   PEERS=redis tools/bench/compare.sh              only with that one
#   ROWS='write 50x1 |lease' tools/bench/compare.sh only the rows that match the expression, which is
#                                                   compared with `write 50x1 fencekv-sync redis-always`
#
# Everybody commits and answers each write by itself; syncs of writes that come together are shared by
# all of them. What is not obvious of how the peers are driven:
#
#   postgres-on     each statement is a transaction of its own, ended by a sync message of its own, also
#                   in a batch of 16, which is sent in one piece: a stale or a failing write must not
#                   decide about the others. The commits of 50 connections share an fdatasync (measured:
#                   eleven commits in one), as those of the other servers do.
#   postgres-batch  the other reading: a batch of 16 is one transaction, with one commit. All or nothing
#                   is more than a batch promises elsewhere, and the fence rows stay locked until the
#                   last of them; it is what an application would do that has 16 writes to make.
#   etcd-one        one node, by gRPC from the load generator itself. A fenced write is one Txn: one
#                   comparison, one put on one key (tools/bench/load/etcd_messages.h). A lease is granted,
#                   bound to a name and revoked: three requests.
#   etcd-session    leases as etcd's lock recipe has them: one lease a connection, which all its names
#                   share, so that a cycle is two requests; no name has a time of its own.
#   disk-sync       no server: a write of so many bytes as fencekv logs for one, and an fdatasync, on a
#                   file that grows, as its log does. PostgreSQL writes over a log that is there already,
#                   whose syncs need no journal of the file system: with one client it may be faster.
#   fencekv-sync@N  with --io-threads N.
#
# Builds the preset `release`, installs the peers with apt if they are not there, and leaves a table,
# the figures as JSON and a plot in tools/bench/results/, named by date and commit (RESULTS=DIR: there).
# Every run has a new server on a new directory below BENCH_DIR (build/release/bench), which must be on
# the disk that is to be measured. KEYS (1000000), VALUE_BYTES (100) and SEED (1) are the same for both.
# SERVER and LOAD name programs that are built already, and nothing is built.
#
# Only the ratios within a round mean something on a machine that others use too. The exit code is 0 if
# all replies were right, whatever the figures are.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/steps.sh
. tools/bench/servers.sh

rounds=${ROUNDS:-7}
run_seconds=$(given_seconds 4)
rows=${ROWS:-.}
keys=${KEYS:-1000000}
value_bytes=${VALUE_BYTES:-100}
seed=${SEED:-1}
results=${RESULTS:-tools/bench/results}
peers=${PEERS:-redis postgres etcd disk}
# What fencekv logs beyond the value of a write that is alone in its group: the key, its fence and
# version, and the frames around them.
logged_bytes=155

postgres_program() {
  find /usr/lib/postgresql -path '*/bin/postgres' 2>/dev/null | sort -V | tail -1
}
packages=()
if [[ $peers == *redis* ]] && ! command -v redis-server >/dev/null; then packages+=(redis-server); fi
if [[ $peers == *postgres* ]]; then
  if [[ -z $(postgres_program) ]]; then packages+=(postgresql); fi
  if [[ ! -e /usr/include/postgresql/libpq-fe.h ]]; then packages+=(libpq-dev); fi
fi
if [[ $peers == *etcd* ]]; then
  if ! command -v etcd >/dev/null; then packages+=(etcd-server); fi
  if [[ ! -e /usr/include/nghttp2/nghttp2.h ]]; then packages+=(libnghttp2-dev); fi
fi
if ((${#packages[@]} > 0)); then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  step "install ${packages[*]}" "${as_root[@]}" sh -c \
    'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"' sh \
    "${packages[@]}" >&2
fi
find_programs
server_pid=
server_signal=TERM
stop_servers() {
  [[ -n $server_pid ]] || return 0
  kill -s "$server_signal" "$server_pid" 2>/dev/null || true
  wait "$server_pid" 2>/dev/null || true
  server_pid=
}
make_scratch compare
# PostgreSQL runs as a user of its own, if we are root, and must come by here.
chmod 755 "$scratch"
export PGUSER=bench PGDATABASE=postgres

runs=$scratch/runs.jsonl
: >"$runs"

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_server VARIANT: a new one on a new directory; sets server_pid and port. Of the disk, only the
# directory.
start_server() {
  local log=$scratch/store.log mode=${1#*-} program peer_port as=() more=()
  server_signal=TERM
  rm -rf "$scratch/store"
  mkdir "$scratch/store"
  : >"$log"
  case $1 in
    fencekv-*)
      if [[ $mode == *@* ]]; then more=(--io-threads "${mode#*@}"); fi
      start_fencekv store --durability "${mode%@*}" "${more[@]}"
      ;;
    redis-*)
      port=$(free_port)
      # Snapshots and rewrites of the log are switched off: they would only cost Redis.
      redis-server --port "$port" --bind 127.0.0.1 --dir "$scratch/store" --save '' \
        --appendonly yes --appendfsync "$mode" --auto-aof-rewrite-percentage 0 \
        --daemonize no >"$log" 2>&1 </dev/null &
      server_pid=$!
      await_line 'Ready to accept connections' "$log" redis-server
      ;;
    postgres-*)
      port=$(free_port)
      program=$(postgres_program)
      if [[ $mode == batch ]]; then mode=on; fi
      if ((EUID == 0)); then
        as=(setpriv --reuid postgres --regid postgres --init-groups)
        chown postgres "$scratch/store"
      fi
      "${as[@]}" "${program%/*}/initdb" -D "$scratch/store" -A trust -U "$PGUSER" -E UTF8 \
        --no-locale >"$log" 2>&1 </dev/null || fail "initdb"
      "${as[@]}" "$program" -D "$scratch/store" -p "$port" -h 127.0.0.1 -k '' \
        -c max_connections=300 -c synchronous_commit="$mode" >"$log" 2>&1 </dev/null &
      server_pid=$!
      server_signal=INT
      await_line 'ready to accept connections' "$log" postgres
      ;;
    etcd-*)
      port=$(free_port)
      peer_port=$(free_port)
      etcd --data-dir "$scratch/store" --logger=zap --log-outputs=stderr \
        --listen-client-urls "http://127.0.0.1:$port" \
        --advertise-client-urls "http://127.0.0.1:$port" \
        --listen-peer-urls "http://127.0.0.1:$peer_port" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer_port" \
        --initial-cluster "default=http://127.0.0.1:$peer_port" >"$log" 2>&1 </dev/null &
      server_pid=$!
      await_line 'serving client traffic' "$log" etcd
      ;;
  esac
}

# load VARIANT WORKLOAD arguments...
load() {
  local variant=$1 workload=$2
  shift 2
  local more=()
  case $variant in
    disk-*)
      more=(--file "$scratch/store/log" --value-bytes "$((value_bytes + logged_bytes))")
      ;;
    *) more=(--port "$port" --server-pid "$server_pid" --value-bytes "$value_bytes") ;;
  esac
  case $variant in
    postgres-batch) more+=(--one-transaction) ;;
    etcd-session) more+=(--shared-lease) ;;
  esac
  "$load_program" --target "${variant%%-*}" --workload "$workload" --keys "$keys" "${more[@]}" \
    "$@" </dev/null
}

# every_key VARIANT WORKLOAD: does it with each of them once.
every_key() {
  load "$1" "$2" --distribution once --operations "$keys" --connections 50 --pipeline 16 \
    --seed "$seed" >/dev/null || fail "$1: $2 of every key"
}

# run ROUND VARIANT WORKLOAD CONNECTIONS PIPELINE
run() {
  local round=$1 variant=$2 workload=$3 connections=$4 pipeline=$5 filling outcome
  start_server "$variant"
  if [[ $workload == *get || $workload == stale ]]; then
    filling='write'
    if [[ $variant == redis-* && $workload == get ]]; then filling='set'; fi
    every_key "$variant" "$filling"
    # All have the memory for all keys, and are compared on what they have read before.
    if [[ $workload == *get ]]; then every_key "$variant" "$workload"; fi
  fi
  outcome=$(load "$variant" "$workload" --connections "$connections" --pipeline "$pipeline" \
    --seconds "$run_seconds" --warm-up "$(python3 -c "print($run_seconds / 8)")" \
    --seed "$((seed + round))") || fail "$variant, $workload ${connections}x$pipeline: $outcome"
  stop_servers
  printf '{"round":%d,"variant":"%s","workload":"%s","connections":%d,"pipeline":%d,"load":%s}\n' \
    "$round" "$variant" "$workload" "$connections" "$pipeline" "$outcome" >>"$runs"
}

# Groups of runs that are compared with each other, one after the other: a workload and its variants,
# with the workload of a variant after a colon if it is another.
groups=()
groups+=("write 1 1 fencekv-sync disk-sync redis-always postgres-on")
groups+=("write 50 1 fencekv-sync redis-always postgres-on etcd-one")
groups+=("write 50 1 fencekv-process redis-everysec postgres-off")
groups+=("write 50 16 fencekv-sync redis-always postgres-on postgres-batch")
groups+=("write 50 16 fencekv-process redis-everysec postgres-off")
groups+=("stale 50 1 fencekv-sync")
groups+=("stale 50 16 fencekv-process")
groups+=("write 200 1 fencekv-sync redis-always etcd-one")
groups+=("write 200 1 fencekv-process redis-everysec")
groups+=("write 200 16 fencekv-sync redis-always")
groups+=("write 200 16 fencekv-process redis-everysec")
for shape in '50 1' '50 16'; do
  groups+=("get $shape fencekv-process fencekv-process:fenced-get redis-everysec")
done
groups+=("lease 50 1 fencekv-sync redis-always postgres-on etcd-one etcd-session")
groups+=("lease 50 1 fencekv-process redis-everysec")
# Against itself: more threads than processors must not cost much.
groups+=("write 50 1 fencekv-sync@16 fencekv-sync@1")
groups+=("write 50 16 fencekv-process@16 fencekv-process@1")

# is_wanted VARIANT: ours always, others if they are among the peers.
is_wanted() { [[ $1 == fencekv-* || " $peers " == *" ${1%%-*} "* ]]; }

# has_company VARIANT...: there is something left to compare: a peer, or only ourselves was meant.
has_company() {
  local variant peers_of_it=0
  for variant in "$@"; do
    if [[ $variant == fencekv-* ]]; then continue; fi
    if is_wanted "$variant"; then return 0; fi
    peers_of_it=$((peers_of_it + 1))
  done
  ((peers_of_it == 0))
}

for ((round = 1; round <= rounds; round++)); do
  for group in "${groups[@]}"; do
    read -r workload connections pipeline variants <<<"$group"
    if ! [[ "$workload ${connections}x$pipeline $variants" =~ $rows ]]; then continue; fi
    # shellcheck disable=SC2086  # they are words
    if ! has_company $variants; then continue; fi
    echo "== round $round of $rounds: $workload ${connections}x$pipeline: $variants"
    read -ra variants <<<"$variants"
    # Every other round backwards: what comes first finds another machine than what comes last.
    order=("${!variants[@]}")
    if ((round % 2 == 0)); then mapfile -t order < <(printf '%s\n' "${order[@]}" | tac); fi
    for i in "${order[@]}"; do
      variant=${variants[$i]%%:*}
      if ! is_wanted "$variant"; then continue; fi
      its_workload=$workload
      if [[ ${variants[$i]} == *:* ]]; then its_workload=${variants[$i]#*:}; fi
      run "$round" "$variant" "$its_workload" "$connections" "$pipeline"
    done
  done
done

python3 tools/bench/report.py "$runs" --results "$results" --keys "$keys" \
  --value-bytes "$value_bytes" --seconds "$run_seconds" --directory "$scratch" \
  --command "PEERS='$peers' ROUNDS=$rounds SECONDS=$run_seconds KEYS=$keys VALUE_BYTES=$value_bytes SEED=$seed \
tools/bench/compare.sh"
