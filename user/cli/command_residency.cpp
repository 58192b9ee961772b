// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "error/error.h"
#include "workload/backing_files.h"

namespace servedby::cli {

namespace {

struct Options {
  std::vector<std::string> paths;
  bool map = false;
  bool json = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "servedby: {}\n", error.line());
  return static_cast<int>(error.exit);
}

int show(const Options& options) {
  nlohmann::json files = nlohmann::json::array();
  bool all_known = true;
  for (const std::string& path : options.paths) {
    const auto levels = residency_of_levels(path, options.map);
    if (!levels) return fail(levels.error());
    all_known = all_known && levels->front().residency.known();
    if (!options.json) fmt::print("{}", residency_text(*levels));
    files.push_back(residency_json(*levels));
  }
  const nlohmann::json result = {{"schema", "servedby.residency/1"}, {"files", std::move(files)}};
  if (options.json) fmt::print("{}\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return static_cast<int>(all_known ? Exit::done : Exit::not_permitted);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "residency", "how much of a file, and of every loop backing file below it, is in the page cache");
  command->add_option("PATH", options->paths, "files")->required();
  command->add_flag("--map", options->map, "also print the resident ranges, one 'BEGIN END' a line, in bytes");
  command->add_flag("--json", options->json, "the result as JSON on stdout");
  command->callback([&run, options] { run = [options] { return show(*options); }; });
}

}  // namespace

extern const Command command_residency{add};

}  // namespace servedby::cli
