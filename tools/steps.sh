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
  /usr/bin/python3 -B tools/test_report.py "$report" || return 1
  return "$outcome"
}
