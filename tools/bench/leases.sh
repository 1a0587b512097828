#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What leases cost when there are many, as a table: acquire, renew, release and expiry with many live
# leases against few; opening; memory; a storm of expiries; queues; renewals of many; bytes on disk.
#
#   tools/bench/leases.sh                          everything, with 100,000 leases: some minutes
#   tools/bench/leases.sh --leases 1000000 --names 1000000 --rounds 5
#   tools/bench/leases.sh storm --leases 1000000   only that section
#   tools/bench/leases.sh --help
#
# Builds the preset `release` first. BENCH_DIR (build/release/bench) is where the stores are made: on
# the disk that `sync` is to be measured on. The compaction after the churn needs `ldb` (Debian package
# rocksdb-tools); without it that row is left out. The exit code is 0 only if all came out right.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tools/steps.sh

step "configure" cmake --preset release >/dev/null
step "build" cmake --build --preset release --target fencekv_bench_leases >/dev/null
program=$(find build/release -type f -name fencekv_bench_leases -perm -u+x | head -1)
directory=${BENCH_DIR:-build/release/bench}
mkdir -p "$directory"
rm -rf "$directory/churn"

# The section `reclaim` comes after the compaction of what `churn` has left.
sections=()
while (($# > 0)) && [[ $1 != -* ]]; do
  sections+=("$1")
  shift
done
if ((${#sections[@]} == 0)); then sections=(cost opening storm waiting many churn reclaim); fi

outcome=0
bytes_a_name() {
  find "$directory/churn" -type f -printf '%s\n' |
    awk -v names="$names" -v what="$1" '{ sum += $1 }
      END { printf "%-46s %-8s %.1f\n", "bytes on disk a name, " what, "process", sum / names }'
}
compact() {
  [[ -d $directory/churn/db ]] || return 0
  if ! command -v ldb >/dev/null; then
    echo "no ldb: install rocksdb-tools to see the bytes after a compaction"
    return 0
  fi
  ldb --db="$directory/churn/db" --compression_type=lz4 --bloom_bits=10 compact >/dev/null
  bytes_a_name "$1"
}

for section in "${sections[@]}"; do
  keep=()
  if [[ $section == churn || ($section == reclaim && -d $directory/churn) ]]; then
    keep=(--keep "$directory/churn")
  fi
  "$program" "$section" --dir "$directory" "${keep[@]}" "$@" </dev/null || outcome=1
  case $section in
    churn)
      cmake --build --preset release --target fencekv-admin >/dev/null
      names=$(build/release/tools/admin/fencekv-admin stat "$directory/churn" --format json |
        sed -nE 's/.*"leases":([0-9]+).*/\1/p')
      compact "compacted"
      ;;
    reclaim) compact "reclaimed and compacted" ;;
  esac
done
rm -rf "$directory/churn"
exit "$outcome"
