#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the tests alone do not show: format, lint, sanitizers, coverage of the rules, what commands cost,
# a short fuzz run.
#
#   tools/check.sh                        everything
#   tools/check.sh format lint asan ...   only the steps named, in the order below
#
# FUZZ_SECONDS (60): how long each fuzz target runs; two run at a time.
# Every step runs even if one before it failed; the summary at the end names each, with the last
# lines of those that failed. Needs nothing but Debian 12; the compiler cache makes a second run much
# shorter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/steps.sh

fuzz_seconds=${FUZZ_SECONDS:-60}

# The sources under version control that clang-format knows.
sources() { git -c safe.directory='*' ls-files -- "$@" | grep -E '\.(cpp|h)$'; }

check_format() {
  local files
  mapfile -t files < <(sources)
  clang-format-14 --dry-run -Werror "${files[@]}"
  echo "${#files[@]} files"
}

check_scripts() {
  local file
  for file in tools/*.sh tools/bench/*.sh tools/soak/*.sh .ci/run; do bash -n "$file"; done
  /usr/bin/python3 -B tests/layout/check_layout.py .
}

# The engine, the server, the client and the tools; headers through the sources that include them. Of
# the tests only the compiler's warnings are asked.
check_lint() {
  local files
  cmake --preset dev >/dev/null
  # Each public header compiles by itself.
  cmake --build --preset dev --target all_verify_interface_header_sets
  mapfile -t files < <(sources engine server client tools | grep '\.cpp$')
  /usr/bin/python3 -B tools/lint.py build/dev "${files[@]}"
}

# test_programs PRESET FAMILY...: the targets of those families that there are.
test_programs() {
  local preset=$1
  shift
  ninja -C "build/$preset" -t targets all |
    sed -nE "s/^(fencekv_($(IFS='|'; echo "$*"))_tests): phony\$/\1/p"
}

# An instrumented library cannot be linked by an outside project, and real clients, demo and README see
# nothing of the server that the net family does not.
check_asan() {
  cmake --preset asan
  cmake --build --preset asan
  run_tests asan --label-exclude '^(clients|demo|readme|package|layout)$'
}

# The families that have threads of their own, and the model, whose steps pass through all of them; the
# crash family is about processes.
check_tsan() {
  local programs
  cmake --preset tsan
  mapfile -t programs < <(test_programs tsan unit engine_unit server_unit contract model net)
  cmake --build --preset tsan --target "${programs[@]}" fencekv-server
  run_tests tsan
}

check_coverage() {
  local programs
  cmake --preset coverage
  mapfile -t programs < <(test_programs coverage engine_unit contract)
  cmake --build --preset coverage --target "${programs[@]}"
  find build/coverage -name '*.gcda' -delete
  run_tests coverage
  # What the library itself executed: the control runs compile the rules once more, without the compare.
  # A branch that only an exception of the standard library takes (no memory) is no rule, nor is an
  # assertion that would fail; and some of the first look to gcov like any other.
  gcovr --root . build/coverage/engine/CMakeFiles/fencekv_engine.dir \
    --filter 'engine/core/(rules|lease_rules|succession|grants|lease|waiters)\.cpp' \
    --exclude-throw-branches --exclude-unreachable-branches \
    --exclude-branches-by-pattern '.*assert\(.*' \
    --branches --print-summary --fail-under-branch 99 --fail-under-line 100
}

# Instructions a command, in the build type that ships. Allocations are compared by the tests already.
check_cost() {
  tools/bench/cost.sh
}

# Short, because all checks together have to fit into the time of CI; hours are for tools/soak/fuzz.sh.
# The seed is another one for each change of the sources, and the same for the same: whoever runs the
# check again sees what it saw, and no change is blamed by chance for what was there before.
check_fuzz() {
  local seed
  seed=$(git -c safe.directory='*' rev-parse HEAD:engine HEAD:server HEAD:client HEAD:tools/admin \
    HEAD:tests/fuzz | cksum | cut -d' ' -f1)
  echo "FUZZ_SEED=$seed"
  FUZZ_SEED=$seed FUZZ_SECONDS=$fuzz_seconds tools/soak/fuzz.sh
}

all=(format scripts lint asan tsan coverage cost fuzz)
if (($# == 0)); then set -- "${all[@]}"; fi

./tools/setup.sh check

mkdir -p build/check
results=()
failed=()
for name in "$@"; do
  if [[ " ${all[*]} " != *" $name "* ]]; then
    echo "usage: tools/check.sh [${all[*]}]" >&2
    exit 2
  fi
  began=$SECONDS
  # In a process of its own, so that `set -e` holds inside: in an `if` it would not.
  set +e
  (
    set -e
    "check_$name" </dev/null 2>&1
  ) | tee "build/check/$name.log"
  code=${PIPESTATUS[0]}
  set -e
  if ((code == 0)); then verdict=passed; else
    verdict=FAILED
    failed+=("$name")
  fi
  results+=("$(printf '%-9s %s, %d s' "$name" "$verdict" $((SECONDS - began)))")
  echo "== $name: $verdict"
done

for name in "${failed[@]}"; do
  echo
  echo "== the last lines of $name (all: build/check/$name.log)"
  tail -n 100 "build/check/$name.log"
done
echo
printf '%s\n' "${results[@]}"
echo "$((${#results[@]} - ${#failed[@]})) checks passed, ${#failed[@]} failed"
((${#failed[@]} == 0))
