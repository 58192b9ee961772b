// SPDX-License-Identifier: Apache-2.0
#include "report/load.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "attribution/attribution.h"
#include "report/layer_names.h"
#include "report/result_json.h"
#include "report/text.h"

namespace servedby::report {
namespace {

constexpr std::size_t largest_result = 1024UL * 1024 * 1024;  ///< bytes of JSON
constexpr int deepest_result = 64;                            ///< levels of nesting

Error unreadable(const std::string& name, std::string why, std::string todo) {
  return Error{"cannot read the result", name, std::move(why), std::move(todo), Exit::bad_input};
}

Result<std::string> read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::unexpected(system_error("cannot open", path, errno, "give a recording or a result"));
  struct stat status{};
  std::string text;
  Result<void> done;
  if (::fstat(fd, &status) != 0) {
    done = std::unexpected(system_error("cannot look at", path, errno));
  } else if (!S_ISREG(status.st_mode)) {
    done = std::unexpected(unreadable(path, "it is not a regular file", "give a recording or a result"));
  } else if (static_cast<std::uint64_t>(status.st_size) > largest_result) {
    done = std::unexpected(unreadable(path, "it is too large for a result", "give a recording or a result"));
  } else {
    text.resize(static_cast<std::size_t>(status.st_size));
    std::size_t have = 0;
    while (have < text.size()) {
      const ssize_t got = ::read(fd, text.data() + have, text.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) done = std::unexpected(system_error("cannot read", path, errno));
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    text.resize(have);
  }
  ::close(fd);
  if (!done) return std::unexpected(done.error());
  return text;
}

}  // namespace

Result<Tree> replay(const Recording& recording, std::string_view tool) {
  const Session& begin = recording.session_at_start();
  Attribution attribution(AttributionSetup{begin.stack, begin.hooks, begin.page_size});
  const auto fed = recording.for_each([&](std::span<const std::byte> record) { attribution.feed(record); });
  if (!fed) return std::unexpected(fed.error());
  Session session = recording.session();
  AttributionResult result = attribution.finish(session);
  if (!recording.complete()) {
    result.complete = false;
    ++result.losses["end_of_recording"];
    session.warnings.emplace_back("the recording ends before the capture did: what came after is missing");
  }
  return result_tree(result, session, tool);
}

Result<Tree> parse_result(const std::string& text, const std::string& name) {
  // Walking and freeing a tree recurse, so its depth is limited while it is being parsed.
  const auto shallow = [](int depth, Tree::parse_event_t, Tree&) {
    if (depth > deepest_result) throw std::length_error("nested too deep");
    return true;
  };
  Tree tree;
  try {
    tree = Tree::parse(text, shallow);
  } catch (const std::exception& wrong) {
    return std::unexpected(unreadable(name, "it is neither a recording nor JSON: " + printable(wrong.what()), ""));
  }
  const bool named = tree.is_object() && tree.contains("schema") && tree.at("schema").is_string();
  const std::string schema = named ? tree.at("schema").get<std::string>() : "";
  if (schema != result_schema) {
    const std::string is = schema.empty() ? "it names no schema" : "it is " + printable(schema);
    return std::unexpected(unreadable(name, is + ", not " + result_schema, "give a recording or a result"));
  }
  if (auto rendered = result_text(tree, TextStyle{false, true, 0}); !rendered) {
    return std::unexpected(unreadable(name, rendered.error().why, rendered.error().todo));
  }
  return tree;
}

Result<Tree> load_result(const std::string& path, std::string_view tool, Incomplete incomplete) {
  if (looks_like_recording(path)) {
    const auto recording = Recording::open(path, incomplete);
    if (!recording) return std::unexpected(recording.error());
    return replay(*recording, tool);
  }
  auto text = read_file(path);
  if (!text) return std::unexpected(text.error());
  return parse_result(*text, path);
}

}  // namespace servedby::report
