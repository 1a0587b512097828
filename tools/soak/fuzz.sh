#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzz targets, each for FUZZ_SECONDS, FUZZ_JOBS of them at a time.
#
#   tools/soak/fuzz.sh                                       an hour each
#   FUZZ_SECONDS=28800 tools/soak/fuzz.sh fuzz_model         a night for one
#
# Inputs that reach new code are kept in build/fuzz/corpus, so the next run goes on where this one
# stopped. An input that breaks a promise is kept as build/fuzz/TARGET-crash-…, and is played again
# with `build/fuzz/tests/fuzz/TARGET FILE`. Put it into tests/fuzz/corpus/TARGET, where it is a test
# under every compiler, and repair the cause.
#
# FUZZ_SECONDS (3600), FUZZ_JOBS (2), FUZZ_SEED (0: another one each time).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${FUZZ_SECONDS:-3600}
jobs=${FUZZ_JOBS:-2}
export FUZZ_SEED=${FUZZ_SEED:-0}

# One target to its end; the figures, or what went wrong.
run_target() {
  local target=$1 seconds=$2
  local log=build/fuzz/$target.log
  # -entropic=0: to weigh inputs by the rarity of what they reach costs more than to run them, where
  # an input reaches tens of thousands of places.
  local options=(-max_total_time="$seconds" -timeout=30 -rss_limit_mb=3072 -print_final_stats=1 -entropic=0
                 -seed="$FUZZ_SEED" -artifact_prefix="build/fuzz/$target-")
  if [[ -e tests/fuzz/$target.dict ]]; then options+=(-dict="tests/fuzz/$target.dict"); fi
  # New inputs go to build/, the kept ones are read only.
  mkdir -p "build/fuzz/corpus/$target"
  if ! "build/fuzz/tests/fuzz/$target" "${options[@]}" \
    "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    tail -60 "$log"
    echo "$target: FAILED, see $log"
    return 1
  fi
  echo "$target: $(sed -nE 's/^stat::number_of_executed_units: *//p' "$log") executions in $seconds s"
}

if [[ ${1-} == --one ]]; then
  run_target "$2" "$3"
  exit
fi

cmake --preset fuzz >/dev/null
mapfile -t targets < <(ninja -C build/fuzz -t targets all | sed -nE 's/^(fuzz_[a-z0-9_]+): phony$/\1/p')
if (($# > 0)); then targets=("$@"); fi
if ((${#targets[@]} == 0)); then
  echo "no fuzz target" >&2
  exit 1
fi
cmake --build --preset fuzz --target "${targets[@]}"
# xargs fails if one of them does, after all of them have run.
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} tools/soak/fuzz.sh --one {} "$seconds"
