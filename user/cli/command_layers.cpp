// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "error/error.h"
#include "stack/layers.h"

namespace servedby::cli {

namespace {

struct Options {
  std::vector<std::string> paths;
  bool json = false;
};

int show(const Options& options) {
  const Root root;
  std::vector<PathLayers> all;
  for (const std::string& path : options.paths) {
    auto layers = layers_of(path, root);
    if (!layers) {
      fmt::print(stderr, "servedby: {}\n", layers.error().line());
      return static_cast<int>(layers.error().exit);
    }
    all.push_back(*std::move(layers));
  }
  if (options.json) {
    nlohmann::json result{{"schema", "servedby.layers/1"}, {"paths", nlohmann::json::array()}};
    for (const PathLayers& layers : all) result["paths"].push_back(layers_json(layers));
    fmt::print("{}\n", result.dump(2));
  } else {
    for (const PathLayers& layers : all) fmt::print("{}", layers_text(layers));
  }
  return static_cast<int>(Exit::done);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("layers", "the storage stack under a file, from file to drive");
  command->add_option("PATH", options->paths, "files, directories or block devices")->required();
  command->add_flag("--json", options->json, "the result as JSON on stdout");
  command->callback([&run, options] { run = [options] { return show(*options); }; });
}

}  // namespace

extern const Command command_layers;
const Command command_layers{add};

}  // namespace servedby::cli
