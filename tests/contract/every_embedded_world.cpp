// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/world.h"

namespace fencekv::testing {

std::vector<WorldKind> every_world() {
  return {{"Memory", make_memory_world}, {"RocksDB", make_rocksdb_world}};
}

}  // namespace fencekv::testing
