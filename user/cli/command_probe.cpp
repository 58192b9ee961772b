// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "error/error.h"
#include "workload/aimdo_probe.h"
#include "workload/sequential_probe.h"
#include "workload/size_text.h"

namespace servedby::cli {

namespace {

struct Options {
  std::vector<std::string> paths;
  std::string order;
  std::string task = "2M";
  std::string window = "64M";
  unsigned workers = 8;
  unsigned passes = 1;
  bool mark_cold = false;
  bool no_checksum = false;
  bool json = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "servedby: {}\n", error.line());
  return static_cast<int>(error.exit);
}

int print(const Result<ProbeResult>& result, bool json) {
  if (!result) return fail(result.error());
  // A path need not be UTF-8; JSON must.
  if (json)
    fmt::print("{}\n", nlohmann::json(*result).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", text_of(*result));
  return static_cast<int>(Exit::done);
}

/// A size option of at least a page: with less, the list of tasks outgrows the data.
Result<std::uint64_t> size_option(const char* option, const std::string& text) {
  auto bytes = parse_size(text);
  if (bytes && *bytes < 4096)
    return std::unexpected(Error{"bad value of", option, "it is less than 4K", "give 2M, for instance", Exit::usage});
  return bytes;
}

int aimdo(const Options& options) {
  AimdoOptions aimdo_options;
  aimdo_options.mark_cold = options.mark_cold;
  aimdo_options.checksum = !options.no_checksum;
  const auto task = size_option("--task", options.task);
  if (!task) return fail(task.error());
  const auto window = size_option("--window", options.window);
  if (!window) return fail(window.error());
  aimdo_options.shape.workers = options.workers;
  aimdo_options.shape.task_bytes = *task;
  aimdo_options.shape.window_bytes = *window;
  auto set = open_tensor_set(options.paths);
  if (!set) return fail(set.error());
  if (!options.order.empty())
    if (auto ordered = apply_order_file(*set, options.order); !ordered) return fail(ordered.error());
  return print(probe_aimdo(*set, aimdo_options), options.json);
}

int sequential(const Options& options) {
  return print(probe_sequential(options.paths, {.passes = options.passes, .checksum = !options.no_checksum}),
               options.json);
}

void add_common(CLI::App& probe, Options& options) {
  probe.add_option("FILE", options.paths, "model files; several are one set")->required();
  probe.add_flag("--no-checksum", options.no_checksum, "only read: no time goes into the checksum");
  probe.add_flag("--json", options.json, "the result as JSON on stdout");
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("probe", "read model files as a loader does, and say how fast");
  command->require_subcommand(1);

  CLI::App* aimdo_command = command->add_subcommand(
      "aimdo", "as comfy-aimdo: 8 workers, 2 MiB preads, a barrier for each tensor or 64 MiB window");
  add_common(*aimdo_command, *options);
  aimdo_command->add_option("--order", options->order, "read these tensors in this order: a file with one name a line");
  aimdo_command->add_flag("--mark-cold", options->mark_cold,
                          "drop the bytes of each pread from the page cache after it");
  aimdo_command->add_option("--workers", options->workers, "reader threads")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  aimdo_command->add_option("--task", options->task, "bytes of one pread")->capture_default_str();
  aimdo_command->add_option("--window", options->window, "bytes of each of the 3 windows")->capture_default_str();
  aimdo_command->callback([&run, options] { run = [options] { return aimdo(*options); }; });

  CLI::App* sequential_command =
      command->add_subcommand("sequential", "one thread, 8 MiB reads, each file from start to end");
  add_common(*sequential_command, *options);
  sequential_command->add_option("--passes", options->passes, "read everything this many times")
      ->check(CLI::Range(1U, 1000000U))
      ->capture_default_str();
  sequential_command->callback([&run, options] { run = [options] { return sequential(*options); }; });
}

}  // namespace

extern const Command command_probe{add};

}  // namespace servedby::cli
