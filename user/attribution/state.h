// SPDX-License-Identifier: Apache-2.0
// What attribution knows while records come in. Internal to attribution/: attribution.cpp takes the records,
// outcome.cpp makes the result of what they left.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attribution/attribution.h"
#include "attribution/calls.h"
#include "attribution/resolve.h"
#include "attribution/tally.h"

namespace servedby {

using namespace attribution;

/// A read of the target: whose it is, and that task's number for it.
inline std::uint64_t call_key(std::uint32_t tid, std::uint32_t read) { return std::uint64_t{tid} << 32 | read; }

struct Attribution::State {
  explicit State(AttributionSetup given)
      : setup(std::move(given)),
        resolver(setup.stack, setup.hooks, setup.crowded_at),
        page(setup.page_size == 0 ? 4096 : setup.page_size) {
    for (const HookStatus& hook : setup.hooks)
      if (hook.name.starts_with("backing-")) backing_watched = backing_watched || hook.attached;
    for (const auto& [dev, system] : setup.stack.file_systems)
      if (!system.server.empty()) served_systems.insert(dev);
  }

  void on_read(const sb_read& read);
  void on_bio(const sb_bio& bio);
  void on_unpack(const sb_bio& bio);
  void on_fill(const sb_fill& fill);
  void on_request(const sb_request& request);
  void on_backing(const sb_backing& backing);
  void on_remap(const sb_remap& remap);
  void on_given(const sb_given& given);
  void on_layout(const sb_layout& layout);
  void on_device(const sb_device& device);
  void on_swapped(const sb_swapped& record);
  void on_task(const sb_task& task);
  void on_name(const sb_file_name& name);
  AttributionResult finish(const Session& session);

  void got(const sb_read& read, Listing& listing, std::uint64_t begin, std::uint64_t end);
  void served(const sb_fill& record, std::uint64_t bytes, File& file, Fill& fill);
  [[nodiscard]] std::optional<UnplacedFile> unplaced(const sb_read& read);
  [[nodiscard]] std::optional<UnplacedFile> unplaced(const sb_request& request);
  [[nodiscard]] bool is_served(DeviceNumber file_system) const { return served_systems.contains(file_system); }
  void without_requests(DeviceNumber dev, std::uint64_t bytes, std::uint32_t flags);
  void served_at_once(DeviceNumber dev, std::uint64_t begin, std::uint64_t end, std::uint64_t time_ns);
  void swap_written(const sb_bio& bio);
  void submit(const sb_bio& bio, Fills& fills, std::uint32_t file, std::uint64_t within, std::uint8_t owner);
  void goes_on(const Part& part, BioSlot bio, std::uint64_t shift);
  Listing& listing_of(const FileKey& opened, const FileKey& real);
  void compact(Fills& fills, std::uint64_t now_ns);
  void end_runs(const Session& session);
  void list_files(const Layers& layers, AttributionResult& result);
  void judge(const Session& session, AttributionResult& result) const;

  AttributionSetup setup;
  Resolver resolver;
  std::uint64_t page;
  bool backing_watched = false;
  std::set<DeviceNumber> served_systems;  ///< file systems that a server fills
  std::map<FileKey, Listing> listings;    ///< by what was opened
  std::map<FileKey, FileKey> opened_as;   ///< real file → what was opened first
  Listing* last_listing = nullptr;        ///< the same file is read again and again
  FileKey last_opened;
  /// Direct I/O of a read that has not ended.
  struct Direct {
    Fills fills;
    bool outlives_task = false;  ///< an asynchronous one
  };
  std::unordered_map<std::uint64_t, Direct> direct;  ///< by call_key()
  CauseSets sets;
  std::unordered_map<std::uint32_t, std::uint32_t> last_returned;  ///< TID → its latest read that has ended
  std::set<std::uint32_t> asynchronous;                            ///< TIDs whose reads do not end in their order
  std::map<DeviceNumber, Device> made;  ///< devices that the session did not begin with, by their numbers here
  std::map<DeviceNumber, unsigned> devices_of_number;  ///< one after the other, as far as the session saw
  std::uint64_t malformed = 0;
  std::uint64_t taken = 0;
  std::uint32_t last_process = 0;

  // Buffers of the functions above, kept for their memory.
  std::vector<Run> runs;
  std::vector<Part> parts;
  std::vector<Slice> slices;
  std::vector<Sum> sums;
};

}  // namespace servedby
