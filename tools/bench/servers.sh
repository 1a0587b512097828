# SPDX-License-Identifier: Apache-2.0
# For the scripts beside it, which source it: what is measured, where, and servers that are ready.
# shellcheck shell=bash disable=SC2034  # what is set here is used there

# given_seconds DEFAULT: what SECONDS was in the environment. Bash counts SECONDS up from what it was
# given, and an exported one is only what it starts with.
given_seconds() {
  local given
  given=$(grep -z '^SECONDS=' "/proc/$$/environ" | tr -d '\0' | cut -d= -f2) || true
  echo "${given:-$1}"
}

# Sets server_program and load_program: SERVER and LOAD, or those of the preset `release`, built.
find_programs() {
  if [[ -z ${SERVER:-} || -z ${LOAD:-} ]]; then
    step "configure" cmake --preset release >/dev/null
    step "build" cmake --build --preset release --target fencekv-server fencekv_bench_load >/dev/null
  fi
  server_program=${SERVER:-build/release/server/fencekv-server}
  load_program=${LOAD:-build/release/tools/bench/load/fencekv_bench_load}
}

# make_scratch NAME: a new directory below BENCH_DIR, scratch, on the disk that is to be measured. At the
# end of the script it is removed, after `stop_servers`, which the script defines.
make_scratch() {
  mkdir -p "${BENCH_DIR:-build/release/bench}"
  scratch=$(mktemp -d "${BENCH_DIR:-build/release/bench}/$1.XXXXXX")
  trap 'stop_servers; rm -rf "$scratch"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

fail() {
  echo "${0##*/}: $1" >&2
  tail -5 "$scratch"/*.log >&2 || true
  exit 1
}

# await_line PATTERN LOG NAME: until the server server_pid has said so.
await_line() {
  local i
  for ((i = 0; i < 600; i++)); do
    if grep -qE "$1" "$2"; then return; fi
    kill -0 "$server_pid" 2>/dev/null || fail "$3 did not start"
    sleep 0.05
  done
  fail "$3 was not ready within 30 s"
}

# start_fencekv NAME arguments...: a server on the directory scratch/NAME; sets server_pid and port.
start_fencekv() {
  local name=$1 log=$scratch/$1.log
  shift
  "$server_program" --dir "$scratch/$name" --port 0 "$@" >"$log" 2>"$scratch/$name-errors.log" \
    </dev/null &
  server_pid=$!
  await_line '^ready ' "$log" fencekv-server
  port=$(sed -nE 's/^ready .*:([0-9]+)$/\1/p' "$log")
}
