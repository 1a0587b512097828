#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what fencekv needs on Debian 12. Run it as root, or as a user who may use sudo.
#
#   tools/setup.sh          to build, to run the demo and all tests
#   tools/setup.sh demo     to build and to run the demo only (no Node.js)
#   tools/setup.sh check    the same as without an argument, and what tools/check.sh needs
#
# Running it again is safe and quick: what is there already is not touched, and when nothing is
# missing neither root nor the network is needed.
set -euo pipefail

build=(g++ cmake ninja-build pkg-config ccache git ca-certificates
  librocksdb-dev libboost1.81-dev libfmt-dev libspdlog-dev libcli11-dev libtomlplusplus-dev
  nlohmann-json3-dev libxxhash-dev libssl-dev
  libgtest-dev libgmock-dev librapidcheck-dev)
# The interpreter that python3-redis belongs to is /usr/bin/python3, whatever else is on PATH.
demo=(redis-server redis-tools python3 python3-redis)
clients=(libhiredis-dev)
# Sets the wall clock of a single process, for tests/clock.
clock=(faketime)
# Of the benchmarks, what is linted too: the clients of peers of tools/bench/compare.sh (libpq-dev,
# libnghttp2-dev), and what tools/bench/embedded.sh needs (libbenchmark-dev).
check=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev gcovr valgrind libpq-dev
  libnghttp2-dev libbenchmark-dev)

case "${1:-test}" in
  demo) wanted=("${build[@]}" "${demo[@]}") ;;
  test) wanted=("${build[@]}" "${demo[@]}" "${clients[@]}" "${clock[@]}") ;;
  check) wanted=("${build[@]}" "${demo[@]}" "${clients[@]}" "${clock[@]}" "${check[@]}") ;;
  *)
    echo "usage: tools/setup.sh [demo|test|check]" >&2
    exit 2
    ;;
esac

# Whoever has a Node.js of another origin keeps it; Debian's own would not install beside it.
if [[ "${1:-test}" != demo ]]; then
  command -v node >/dev/null || wanted+=(nodejs)
  command -v npm >/dev/null || wanted+=(npm)
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this script knows Debian 12 only; install by hand: ${wanted[*]}" >&2
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  # A package of several architectures answers once for each.
  [[ "$state" == installed* ]] || missing+=("$package")
done

if ((${#missing[@]} == 0)); then
  echo "setup: all ${#wanted[@]} packages are there"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: not root and no sudo; as root run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0
  -o DPkg::Lock::Timeout=300)

echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
"${apt[@]}" update </dev/null
"${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null
echo "setup: done"
