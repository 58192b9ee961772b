// SPDX-License-Identifier: Apache-2.0
#include "selfcheck/selfcheck.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "capture/target.h"
#include "formats/regular_file.h"
#include "selfcheck/states.h"
#include "stack/layers.h"
#include "workload/eviction.h"

namespace servedby {
namespace {

using Bytes = std::map<std::string, std::uint64_t>;

Bytes layers_in(const std::vector<ServedBy>& served_by) {
  Bytes bytes;
  for (const ServedBy& served : served_by) bytes[fmt::format("{}", fmt::join(served.via, " > "))] += served.bytes;
  return bytes;
}

/// The drive below a path, by name; empty where it is not exactly one.
std::string drive_below(const PathLayers& layers) {
  std::string drive;
  for (const auto& [dev, device] : layers.stack.devices) {
    if (!device.below.empty()) continue;
    if (!drive.empty()) return {};
    drive = device.name;
  }
  return drive;
}

/// Reads the first `bytes` bytes of the file, so that their pages, and no others, come into the cache.
Result<void> make_resident(const std::string& path, std::uint64_t bytes) {
  auto file = open_regular_file(path);
  if (!file) return std::unexpected(file.error());
  posix_fadvise(file->fd(), 0, 0, POSIX_FADV_RANDOM);  // nothing beyond what is asked for
  std::vector<char> block(1 << 20);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t got =
        pread(file->fd(), block.data(), std::min<std::uint64_t>(block.size(), bytes - at), static_cast<off_t>(at));
    if (got <= 0) return std::unexpected(system_error("cannot read", path, errno));
    at += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> forget(const std::string& path) {
  auto file = open_regular_file(path);
  if (!file) return std::unexpected(file.error());
  auto evicted = evict_file(*file);
  if (!evicted) return std::unexpected(evicted.error());
  if (!evicted->complete()) {
    return std::unexpected(
        Error{"cannot evict", path, evicted->problem(), "end what holds it in memory", Exit::answer_no});
  }
  return {};
}

class Checker {
 public:
  Checker(const SelfcheckOptions& options, Selfcheck& check) : options_(options), check_(check) {}

  /// Makes the state, reads `path` under the profiler, compares.
  void prove(const std::string& state, const std::string& path, const Bytes& wanted,
             const std::function<Result<void>()>& make) {
    if (options_.progress) options_.progress(state);
    Proof proof;
    proof.state = state;
    proof.wanted = wanted;
    if (auto made = make(); !made) {
      proof.skipped = made.error().line();
    } else if (auto outcome = read_traced(path); !outcome) {
      proof.problem = outcome.error().line();
    } else {
      compare(path, *outcome, proof);
    }
    check_.proofs.push_back(std::move(proof));
  }

 private:
  Result<LiveOutcome> read_traced(const std::string& path) const {
    LiveOptions live_options;
    live_options.capture.tier = options_.tier;
    auto live = Live::open(live_options);
    if (!live) return std::unexpected(live.error());
    // dd is everywhere; a block of 2 MiB is the loaders' shape.
    const std::vector<std::string> command{"dd", "if=" + path, "of=/dev/null", "bs=2M", "status=none"};
    auto reader = HeldCommand::hold(command);
    if (!reader) return std::unexpected(reader.error());
    if (auto begun = live->begin(reader->pid(), command); !begun) return std::unexpected(begun.error());
    if (auto released = reader->release(); !released) return std::unexpected(released.error());
    live->watch([&] { return reader->ended(); });
    const int code = reader->reap();
    if (code != 0)
      return std::unexpected(Error{"cannot read", path, fmt::format("dd ended with {}", code), {}, Exit::bad_input});
    return live->end(code);
  }

  void compare(const std::string& path, const LiveOutcome& outcome, Proof& proof) const {
    const AttributionResult& result = outcome.result;
    proof.complete = result.complete;
    check_.kernel = outcome.session.kernel;
    check_.tier = result.tier;
    for (const FileResult& file : result.files) {
      if (file.path == path) proof.found = layers_in(file.served_by);
    }
    if (proof.found != proof.wanted) proof.problem = "the answer is not what the state demands";
    if (!proof.problem.empty() || result.complete) return;
    std::vector<std::string> lost;
    for (const auto& [name, count] : result.losses) {
      if (count != 0) lost.push_back(fmt::format("{} {}", name, count));
    }
    proof.problem = fmt::format("the bytes are right, but the result is not complete: {}", fmt::join(lost, ", "));
  }

  const SelfcheckOptions& options_;
  Selfcheck& check_;
};

std::string absolute(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  std::string text = resolved == nullptr ? path : resolved;
  std::free(resolved);
  return text;
}

void prove_loop(Checker& checker, const ScratchFile& file, const std::string& drive, std::uint64_t bytes,
                Selfcheck& check) {
  auto loop = ScratchLoop::attach(file.path());
  if (!loop) {
    for (const char* state :
         {"loop device: upper level evicted, backing file resident", "loop device: both levels evicted"}) {
      Proof& proof = check.proofs.emplace_back();
      proof.state = state;
      proof.skipped = loop.error().line();
    }
    return;
  }
  checker.prove("loop device: upper level evicted, backing file resident", loop->node(),
                {{loop->name() + " > page-cache", bytes}}, [&]() -> Result<void> {
                  if (auto made = make_resident(file.path(), bytes); !made) return made;
                  return loop->forget_pages();
                });
  checker.prove("loop device: both levels evicted", loop->node(), {{loop->name() + " > " + drive, bytes}},
                [&]() -> Result<void> {
                  if (auto forgotten = loop->forget_pages(); !forgotten) return forgotten;
                  return forget(file.path());
                });
}

}  // namespace

bool Selfcheck::exact() const {
  const bool any = std::ranges::any_of(proofs, [](const Proof& proof) { return proof.skipped.empty(); });
  return any && std::ranges::all_of(proofs, [](const Proof& proof) { return proof.exact() || !proof.skipped.empty(); });
}

Result<Selfcheck> selfcheck(const SelfcheckOptions& options) {
  auto made = ScratchFile::make(absolute(options.directory), options.bytes);
  if (!made) return std::unexpected(made.error());
  const ScratchFile& file = *made;
  const auto layers = layers_of(file.path());
  if (!layers) return std::unexpected(layers.error());
  const std::string drive = drive_below(*layers);
  if (drive.empty()) {
    return std::unexpected(Error{"cannot check", options.directory, "there is not exactly one drive below it",
                                 "give a directory on a plain file system of one drive", Exit::not_permitted});
  }
  if (layers->stack.devices.size() > 2) {  // the drive, and at most its partition
    return std::unexpected(Error{"cannot check", options.directory,
                                 "its file system is on more than a drive or a partition",
                                 "give a directory on a plain file system of one drive", Exit::not_permitted});
  }
  Selfcheck check;
  check.path = file.path();
  Checker checker(options, check);
  const std::uint64_t bytes = options.bytes;
  const std::uint64_t part = bytes * 3 / 8 / 65536 * 65536;
  checker.prove("file evicted", file.path(), {{drive, bytes}}, [&] { return forget(file.path()); });
  checker.prove("the same again, resident", file.path(), {{"page-cache", bytes}},
                [&] { return make_resident(file.path(), bytes); });
  checker.prove("first part resident, rest evicted", file.path(), {{drive, bytes - part}, {"page-cache", part}},
                [&]() -> Result<void> {
                  if (auto forgotten = forget(file.path()); !forgotten) return forgotten;
                  return make_resident(file.path(), part);
                });
  prove_loop(checker, file, drive, bytes, check);
  return check;
}

}  // namespace servedby
