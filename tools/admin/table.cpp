// SPDX-License-Identifier: Apache-2.0
#include "tools/admin/table.h"

#include "tools/admin/text.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fencekv::admin {

Table::Table(Output& output, std::vector<std::string> heading)
    : output_(output), widths_(heading.size()) {
  add(std::move(heading));
}

void Table::add(std::vector<std::string> row) {
  assert(row.size() == widths_.size());
  waiting_.push_back(std::move(row));
  if (waiting_.size() >= kScreenful) finish();
}

void Table::finish() {
  for (const auto& row : waiting_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], columns(row[i]));
  }
  for (const auto& row : waiting_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths_[i] - columns(row[i]) + 2, ' ');
    }
    output_.write(line + "\n");
  }
  waiting_.clear();
}

}  // namespace fencekv::admin
