# SPDX-License-Identifier: Apache-2.0
# For tools/soak/*.sh, which source it: one round after the other until the time is over.
# shellcheck shell=bash

# build_for_soak PRESET TARGET
build_for_soak() {
  cmake --preset "$1" >/dev/null
  cmake --build --preset "$1" --target "$2"
}

# run_rounds SECONDS COMMAND...: runs it again and again in build/soak/, until SECONDS are over or it
# fails; it is never cut short. Its output is kept in build/soak/log, the last lines are shown.
run_rounds() {
  local seconds=$1 rounds=0
  shift
  SECONDS=0  # Without the time that the build took.
  mkdir -p build/soak
  cd build/soak
  : >log
  while ((SECONDS < seconds)); do
    echo "== round $((rounds + 1)), after $SECONDS s" >>log
    if ! "$@" >>log 2>&1; then
      tail -60 log
      echo "round $((rounds + 1)) FAILED after $SECONDS s; all of its output is in $PWD/log" >&2
      return 1
    fi
    rounds=$((rounds + 1))
  done
  grep -E 'operations|kills' log | tail -20
  echo "$rounds rounds in $SECONDS s, nothing lost"
}
