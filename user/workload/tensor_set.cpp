// SPDX-License-Identifier: Apache-2.0
#include "workload/tensor_set.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

namespace servedby {

Result<TensorSet> open_tensor_set(const std::vector<std::string>& paths) {
  TensorSet set;
  for (const std::string& path : paths) {
    auto file = open_regular_file(path);
    if (!file) return std::unexpected(file.error());
    auto layout = read_safetensors_header(*file);
    if (!layout) return std::unexpected(layout.error());
    const std::size_t index = set.files.size();
    for (const Tensor& tensor : layout->tensors)
      set.slices.push_back(Slice{.file = index, .begin = tensor.begin, .bytes = tensor.bytes(), .tensor = tensor.name});
    set.files.push_back(SetFile{*std::move(file), *std::move(layout)});
  }
  return set;
}

Result<void> apply_order_file(TensorSet& set, const std::string& order_path) {
  const auto file = open_regular_file(order_path);
  if (!file) return std::unexpected(file.error());
  std::string text(file->bytes(), '\0');
  if (auto read = read_exactly(*file, 0, text.data(), text.size()); !read) return std::unexpected(read.error());

  std::unordered_map<std::string_view, std::vector<const Slice*>> by_name;
  for (const Slice& slice : set.slices) by_name[slice.tensor].push_back(&slice);

  std::vector<Slice> ordered;
  std::string_view rest = text;
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = rest.find('\n');
    std::string_view name = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (name.ends_with('\r')) name.remove_suffix(1);
    if (name.empty()) continue;
    const auto wrong = [&](std::string why, std::string todo) {
      return std::unexpected(Error{"bad order file", fmt::format("{} line {}", order_path, line), std::move(why),
                                   std::move(todo), Exit::bad_input});
    };
    const auto found = by_name.find(name);
    if (found == by_name.end())
      return wrong(fmt::format("no file of the set has a tensor '{}'", name), "name tensors as the files' headers do");
    if (found->second.size() > 1)
      return wrong(fmt::format("{} and {} both have a tensor '{}'", set.files[found->second[0]->file].file.path(),
                               set.files[found->second[1]->file].file.path(), name),
                   "probe these files one at a time");
    ordered.push_back(*found->second.front());
  }
  set.slices = std::move(ordered);
  return {};
}

}  // namespace servedby
