// SPDX-License-Identifier: Apache-2.0
#include "report/table.h"

#include <algorithm>
#include <utility>

namespace servedby::report {
namespace {

/// Characters, not bytes: continuation bytes of UTF-8 do not count.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }));
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t indent) const {
  std::vector<std::size_t> shown;
  std::vector<std::size_t> widths(columns_.size());
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    widths[column] = width_of(columns_[column].title);
    bool used = false;
    for (const auto& row : rows_) {
      used = used || !row[column].empty();
      widths[column] = std::max(widths[column], width_of(row[column]));
    }
    if (used) shown.push_back(column);
  }
  std::string text;
  const auto line = [&](const auto& cell) {
    std::string cells(indent, ' ');
    for (const std::size_t column : shown) {
      const std::string& content = cell(column);
      const std::string padding(widths[column] - width_of(content), ' ');
      const bool right = columns_[column].align == Align::right;
      cells += right ? padding + content : content + padding;
      cells += "  ";
    }
    cells.erase(cells.find_last_not_of(' ') + 1);
    text += cells + '\n';
  };
  line([&](std::size_t column) -> const std::string& { return columns_[column].title; });
  for (const auto& row : rows_) {
    line([&](std::size_t column) -> const std::string& { return row[column]; });
  }
  return text;
}

}  // namespace servedby::report
