# SPDX-License-Identifier: Apache-2.0
# For tools/*.sh, which source it: steps that say what they do and how long it took, and test runs
# that end with a plain count.
# shellcheck shell=bash

# step TITLE COMMAND...: runs it, and passes its failure on.
step() {
  local title=$1 began=$SECONDS
  shift
  echo "== $title"
  if ! "$@" </dev/null; then
    echo "== $title: FAILED after $((SECONDS - began)) s" >&2
    return 1
  fi
  echo "== $title: $((SECONDS - began)) s"
}

# run_tests PRESET [ctest arguments]: runs the tests and ends with `N passed, N failed, N skipped`.
# Tests that took 10 s and more are named, slowest first.
run_tests() {
  local preset=$1 report="build/$1/junit.xml" outcome=0
  shift
  rm -f "$report"
  echo "== tests ($preset)"
  ctest --preset "$preset" --parallel "$(nproc)" --output-junit junit.xml "$@" </dev/null || outcome=$?
  if [[ ! -s $report ]]; then
    echo "no test ran" >&2
    return 1
  fi
  # ctest --output-junit: one <testcase name= time= status="run|fail|notrun|disabled"> a test. The
  # output of a test is escaped in it, so these patterns match nothing else.
  local failed skipped total
  sed -nE 's/^\s*<testcase name="([^"]*)".* time="([0-9]{2,})[.0-9]*" .*/slow: \2 s  \1/p' "$report" |
    sort -k2,2nr | head -10
  total=$(grep -cE '^\s*<testcase ' "$report" || true)
  failed=$(grep -cE '^\s*<testcase .* status="fail"' "$report" || true)
  skipped=$(grep -cE '^\s*<testcase .* status="(notrun|disabled)"' "$report" || true)
  echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
  if ((outcome != 0)) || ((failed != 0)) || ((total == 0)); then return 1; fi
}
