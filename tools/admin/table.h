// SPDX-License-Identifier: Apache-2.0
/// Rows in aligned columns, without knowing all of them.

#pragma once

#include "tools/admin/output.h"

#include <cstddef>
#include <string>
#include <vector>

namespace fencekv::admin {

/// Aligns the columns of a screenful of rows at a time: memory does not grow with their number, and
/// the columns of later rows are never narrower. `output` must outlive the table.
class Table {
 public:
  Table(Output& output, std::vector<std::string> heading);

  /// As many cells as the heading has; each is one printable line.
  void add(std::vector<std::string> row);
  /// Writes the rows that are still waiting.
  void finish();

 private:
  static constexpr std::size_t kScreenful = 64;

  Output& output_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> waiting_;
};

}  // namespace fencekv::admin
