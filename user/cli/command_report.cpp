// SPDX-License-Identifier: Apache-2.0
// servedby report FILE: a recording or a result, rendered again.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "report/headline.h"
#include "report/load.h"
#include "report/output_file.h"
#include "report/result_json.h"
#include "report/text.h"

namespace servedby::cli {
namespace {

struct Options {
  std::string file, output;
  bool json = false, text = false, hooks = false, incomplete = false, force = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "servedby report: {}\n", error.line());
  return static_cast<int>(error.exit);
}

int report_file(const Options& options) {
  const bool to_file = !options.output.empty() && options.output != "-";
  const auto result = report::load_result(options.file, "servedby " SERVEDBY_VERSION,
                                          options.incomplete ? Incomplete::accepted : Incomplete::refused);
  if (!result) return fail(result.error());
  std::string content;
  if (options.json) {
    content = report::json_text(*result);
  } else {
    const report::TextStyle style{.colour = !to_file && report::wants_colour(STDOUT_FILENO), .hooks = options.hooks};
    auto text = report::result_text(*result, style);
    if (!text) return fail(text.error());
    content = std::move(*text);
  }
  const auto written =
      to_file ? report::write_output(options.output, content, options.force) : report::print_output(content);
  if (!written) return fail(written.error());
  return static_cast<int>(report::lost_something(*result) ? Exit::incomplete : Exit::done);
}

void add(CLI::App& app, std::function<int()>& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("report", "Render a recording or a result again, without root, on any machine");
  command->add_option("FILE", options->file, "A recording (--record) or a result in JSON (-o)")->required();
  auto* text = command->add_flag("--text", options->text, "For people: the answer, then the tables (the default)");
  auto* json = command->add_flag("--json", options->json, "The result as JSON, servedby.result/1");
  json->excludes(text);
  command->add_flag("--hooks", options->hooks, "Show the hooks too")->excludes(json);
  command->add_flag("--incomplete", options->incomplete,
                    "Read a recording whose capture did not finish, as far as it goes");
  command->add_option("-o", options->output, "Write to this file instead of standard output");
  command->add_flag("--force", options->force, "Overwrite the file of -o");
  command->callback([options, &run] { run = [options] { return report_file(*options); }; });
}

}  // namespace

extern const Command command_report;
const Command command_report{add};

}  // namespace servedby::cli
