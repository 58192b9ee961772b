// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "error/error.h"
#include "workload/backing_files.h"
#include "workload/size_text.h"

namespace servedby::cli {

namespace {

struct Options {
  std::vector<std::string> paths;
  std::string range;
  bool through = false;
  bool json = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "servedby: {}\n", error.line());
  return static_cast<int>(error.exit);
}

/// "BEGIN:END" in bytes or sizes; either side may be empty.
Result<std::optional<ByteRange>> range_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const Error wrong{"bad value of", "--range", fmt::format("'{}' is not BEGIN:END", text), "give 0:64M, for instance",
                    Exit::usage};
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::unexpected(wrong);
  ByteRange range{0, UINT64_MAX};
  if (colon != 0) {
    const auto begin = parse_size(text.substr(0, colon));
    if (!begin) return std::unexpected(begin.error());
    range.begin = *begin;
  }
  if (colon + 1 != text.size()) {
    const auto end = parse_size(text.substr(colon + 1));
    if (!end) return std::unexpected(end.error());
    range.end = *end;
  }
  if (range.end < range.begin) return std::unexpected(wrong);
  return range;
}

int evict(const Options& options) {
  const auto range = range_of(options.range);
  if (!range) return fail(range.error());
  nlohmann::json files = nlohmann::json::array();
  bool all_complete = true;
  for (const std::string& path : options.paths) {
    const auto levels = evict_levels(path, *range, options.through);
    if (!levels) return fail(levels.error());
    for (const LevelEviction& level : *levels) all_complete = all_complete && level.eviction.complete();
    if (!options.json) fmt::print("{}", eviction_text(*levels));
    files.push_back(eviction_json(*levels));
  }
  const nlohmann::json result = {
      {"schema", "servedby.evict/1"}, {"complete", all_complete}, {"files", std::move(files)}};
  if (options.json) fmt::print("{}\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return static_cast<int>(all_complete ? Exit::done : Exit::answer_no);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("evict", "write back a file's pages and drop them from the page cache; verifies it");
  command->add_option("PATH", options->paths, "files")->required();
  CLI::Option* through = command->add_flag("--through", options->through, "also evict every loop backing file below");
  command
      ->add_option("--range", options->range,
                   "only the whole pages in BEGIN:END, for instance 64M:128M or 64M: to the end")
      ->excludes(through);
  command->add_flag("--json", options->json, "the result as JSON on stdout");
  command->callback([&run, options] { run = [options] { return evict(*options); }; });
}

}  // namespace

extern const Command command_evict{add};

}  // namespace servedby::cli
