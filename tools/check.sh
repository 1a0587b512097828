#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the tests alone do not show: format, lint, sanitizers, coverage of the rules, a short fuzz run.
#
#   tools/check.sh                        everything
#   tools/check.sh format lint asan ...   only the steps named, in the order below
#
# FUZZ_SECONDS (20): how long each fuzz target runs.
# Every step runs even if one before it failed; the summary at the end names each. Needs nothing but
# Debian 12; the compiler cache makes a second run much shorter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/steps.sh

fuzz_seconds=${FUZZ_SECONDS:-20}

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
  for file in tools/*.sh .ci/run; do bash -n "$file"; done
  /usr/bin/python3 -B tests/layout/check_layout.py .
}

# The engine, the server, the client and the tools; headers through the sources that include them. Of
# the tests only the compiler's warnings are asked.
check_lint() {
  local outcome=0
  cmake --preset dev >/dev/null
  # Each public header compiles by itself.
  cmake --build --preset dev --target all_verify_interface_header_sets
  # One file a job. The sources that include Asio take tens of seconds each: they go first, so that
  # none of them is left over for one core at the end.
  sources engine server client tools | grep '\.cpp$' | xargs grep -cE '#include ["<](boost/|server/|fencekv/client)' |
    sort -t: -k2,2nr | cut -d: -f1 |
    xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet -p build/dev >build/dev/lint.log 2>&1 || outcome=1
  grep -vE '^[0-9]+ warnings? (treated as errors|generated\.)|^Suppressed [0-9]+|^Use -header-filter' build/dev/lint.log || true
  return "$outcome"
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

# The families that have threads of their own; the crash family is about processes.
check_tsan() {
  local programs
  cmake --preset tsan
  mapfile -t programs < <(test_programs tsan unit engine_unit server_unit contract net)
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
  # A branch that only an exception of the standard library takes (no memory) is no rule.
  gcovr --root . build/coverage/engine/CMakeFiles/fencekv_engine.dir \
    --filter 'engine/core/rules\.cpp' --filter 'engine/core/lease_rules\.cpp' \
    --exclude-throw-branches --exclude-unreachable-branches \
    --branches --print-summary --fail-under-branch 100 --fail-under-line 100
}

check_fuzz() {
  local target targets
  cmake --preset fuzz
  mapfile -t targets < <(ninja -C build/fuzz -t targets all | sed -nE 's/^(fuzz_[a-z0-9_]+): phony$/\1/p')
  if ((${#targets[@]} == 0)); then
    echo "no fuzz target" >&2
    return 1
  fi
  cmake --build --preset fuzz --target "${targets[@]}"
  for target in "${targets[@]}"; do
    # New inputs go to build/, the kept ones are read only.
    mkdir -p "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target"
    echo "-- $target: $fuzz_seconds s"
    "build/fuzz/tests/fuzz/$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 \
      -print_final_stats=1 -artifact_prefix="build/fuzz/" \
      "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1 || {
      tail -60 "build/fuzz/$target.log"
      return 1
    }
    grep '^stat::number_of_executed_units' "build/fuzz/$target.log"
  done
}

all=(format scripts lint asan tsan coverage fuzz)
if (($# == 0)); then set -- "${all[@]}"; fi

./tools/setup.sh check

results=()
failed=0
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
    "check_$name" </dev/null
  )
  code=$?
  set -e
  if ((code == 0)); then verdict=passed; else
    verdict=FAILED
    failed=$((failed + 1))
  fi
  results+=("$(printf '%-9s %s, %d s' "$name" "$verdict" $((SECONDS - began)))")
  echo "== $name: $verdict"
done

echo
printf '%s\n' "${results[@]}"
echo "$((${#results[@]} - failed)) checks passed, $failed failed"
((failed == 0))
