// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "cli/commands.h"
#include "error/error.h"
#include "workload/model_writer.h"
#include "workload/size_text.h"

namespace servedby::cli {

namespace {

struct Options {
  std::string path;
  std::string like = "minimax";
  std::string size = "256M";
  std::uint64_t seed = 1;
  bool force = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "servedby: {}\n", error.line());
  return static_cast<int>(error.exit);
}

/// A line that is rewritten ten times a second; only on a terminal.
std::function<void(std::uint64_t, std::uint64_t)> progress_line() {
  if (isatty(STDERR_FILENO) == 0) return {};
  using Clock = std::chrono::steady_clock;
  return [last = Clock::time_point{}](std::uint64_t done, std::uint64_t all) mutable {
    const auto now = Clock::now();
    if (done == all)
      fmt::print(stderr, "\r\033[K");
    else if (now - last >= std::chrono::milliseconds(100))
      fmt::print(stderr, "\r\033[Kwriting {} of {}", size_text(done), size_text(all));
    else
      return;
    last = now;
  };
}

int write(const Options& options) {
  const auto bytes = parse_size(options.size);
  if (!bytes) return fail(bytes.error());
  const auto plan = plan_model(*model_like(options.like), *bytes);
  if (!plan) return fail(plan.error());
  const auto written =
      write_model(options.path, *plan, {.seed = options.seed, .force = options.force, .progress = progress_line()});
  if (!written) return fail(written.error());
  fmt::print("{}: {} ({} bytes), {} tensors, like {}, seed {}\n", options.path, size_text(plan->file_bytes),
             plan->file_bytes, plan->tensors.size(), options.like, options.seed);
  return static_cast<int>(Exit::done);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("model", "write a test model: safetensors, real data, not sparse, not compressible");
  command->add_option("OUT", options->path, "the file to write, usually NAME.safetensors")->required();
  command
      ->add_option("--like", options->like,
                   "whose tensor sizes: minimax (FP8, many tensors), krea (BF16, larger), flat (equal)")
      ->check(CLI::IsMember({"minimax", "krea", "flat"}))
      ->capture_default_str();
  command->add_option("--size", options->size, "size of the file, exactly: 256M, 4G")->capture_default_str();
  command->add_option("--seed", options->seed, "same seed, same bytes")->capture_default_str();
  command->add_flag("--force", options->force, "replace OUT if it exists");
  command->callback([&run, options] { run = [options] { return write(*options); }; });
}

}  // namespace

extern const Command command_model{add};

}  // namespace servedby::cli
