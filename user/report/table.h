// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace servedby::report {

/// A table in plain text: columns as wide as their widest cell, two spaces apart, no trailing spaces. A column in which
/// every cell is empty is left out.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
  };

  explicit Table(std::vector<Column> columns);

  /// As many cells as there are columns.
  void add(std::vector<std::string> cells);

  /// Lines that end with a newline, each after `indent` spaces; the first is the titles.
  [[nodiscard]] std::string text(std::size_t indent) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace servedby::report
