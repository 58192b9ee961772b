// SPDX-License-Identifier: Apache-2.0
#include "workload/probe_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "workload/data_checksum.h"
#include "workload/size_text.h"

namespace servedby {

namespace {

std::uint64_t tensors_of(const ProbeResult& result) {
  std::uint64_t tensors = 0;
  for (const ProbedFile& file : result.files) tensors += file.tensors.value_or(0);
  return tensors;
}

std::string many(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

}  // namespace

std::uint64_t ProbeResult::bytes() const {
  std::uint64_t sum = 0;
  for (const ProbedFile& file : files) sum += file.bytes;
  return sum;
}

std::optional<std::uint64_t> ProbeResult::checksum() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!files[i].checksum) return std::nullopt;
    sum += checksum_of_file_in_set(*files[i].checksum, i);
  }
  return sum;
}

double ProbeResult::bytes_per_second() const {
  return wall_ns == 0 ? 0 : static_cast<double>(bytes()) * 1e9 / static_cast<double>(wall_ns);
}

void to_json(nlohmann::json& json, const ProbeResult& result) {
  json = {{"schema", "servedby.probe/1"},    {"probe", result.probe},     {"settings", nlohmann::json::object()},
          {"bytes", result.bytes()},         {"wall_ns", result.wall_ns}, {"calls", result.calls},
          {"files", nlohmann::json::array()}};
  if (result.wall_ns != 0) json["bytes_per_second"] = static_cast<std::uint64_t>(result.bytes_per_second());
  if (const auto checksum = result.checksum()) json["checksum"] = checksum_text(*checksum);
  for (const auto& [name, value] : result.settings)
    std::visit([&json, &name](auto plain) { json["settings"][name] = plain; }, value);
  for (const ProbedFile& file : result.files) {
    nlohmann::json entry = {{"path", file.path}, {"bytes", file.bytes}};
    if (file.tensors) entry["tensors"] = *file.tensors;
    if (file.checksum) entry["checksum"] = checksum_text(*file.checksum);
    json["files"].push_back(std::move(entry));
  }
}

std::string text_of(const ProbeResult& result) {
  const double seconds = static_cast<double>(result.wall_ns) / 1e9;
  std::string text =
      fmt::format("{}: {} ({} bytes) in {:.3f} s, {:.3f} GiB/s, ", result.probe, size_text(result.bytes()),
                  result.bytes(), seconds, result.bytes_per_second() / (1024.0 * 1024 * 1024));
  if (const std::uint64_t tensors = tensors_of(result); tensors != 0) text += many(tensors, "tensor") + ", ";
  text += many(result.calls, "read");
  if (const auto checksum = result.checksum()) text += ", checksum " + checksum_text(*checksum);
  text += "\n";
  if (result.files.size() < 2) return text;
  for (const ProbedFile& file : result.files) {
    text += fmt::format("  {}: {} ({} bytes)", file.path, size_text(file.bytes), file.bytes);
    if (file.checksum) text += ", checksum " + checksum_text(*file.checksum);
    text += "\n";
  }
  return text;
}

}  // namespace servedby
