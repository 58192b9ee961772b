// SPDX-License-Identifier: Apache-2.0
// Bios that wait for their request, and requests that wait for a backing file. A request is found by device and sector
// range, which survives merges, splits and requeues.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "attribution/fills.h"

namespace servedby::attribution {

/// A bio in flight; its linear parts refer to it.
struct Bio {
  DeviceNumber dev = 0;
  PathId above = 0;  ///< the stacked devices it was resubmitted below
  std::uint64_t address = 0;
  std::uint64_t submit_ns = 0;
  std::uint64_t order = 0;        ///< its place among all bios of the session
  std::uint64_t outstanding = 0;  ///< bytes of its parts that are still in flight
  bool recovered = false;         ///< already counted as one whose completion was missed
  bool zeroed = false;            ///< its device has filled it with zeros: that is it, unless it is passed on after all
  std::uint32_t generation = 0;   ///< steps when the slot is used again
};

/// Bytes of a bio: [begin, end) of the device fill [at, …) of `fills`.
struct Part {
  std::uint64_t begin = 0, end = 0;  ///< device bytes
  std::uint64_t at = 0;
  Fills* fills = nullptr;
  std::uint32_t file = 0;  ///< for the caller: whose `fills`
  BioSlot bio = 0;
};

class InFlight {
 public:
  /// The slot of a bio: a new one, or the one of an earlier record of the same bio. Keeps a new one alive until add().
  BioSlot open(std::uint64_t address, DeviceNumber dev, PathId above, std::uint64_t submit_ns, bool first);
  void set_zeroed(BioSlot bio) { bios_[bio].zeroed = true; }
  void add(const Part& part);
  /// Moves the parts of [begin, end) of `dev` to the end of `out`. Where several bios read the same sectors, the oldest
  /// is the one. `issue_ns` (0: not known) excludes bios that were submitted later than their request was issued.
  void complete(DeviceNumber dev, std::uint64_t begin, std::uint64_t end, std::uint64_t issue_ns,
                std::vector<Part>& out);
  /// Forgets [begin, end) of one bio.
  void retire(BioSlot bio, std::uint64_t begin, std::uint64_t end);
  /// True the first time it is asked for a bio.
  bool first_recovery(BioSlot bio);
  [[nodiscard]] const Bio& at(BioSlot bio) const { return bios_[bio]; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// All parts that are in flight, in the order of device and sector.
  [[nodiscard]] std::vector<Part> all() const;

 private:
  struct Device {
    std::multimap<std::uint64_t, Part> parts;  ///< by first byte
    std::uint64_t longest = 0;
  };
  using Parts = std::multimap<std::uint64_t, Part>;

  Parts::iterator first_overlap(Device& device, std::uint64_t begin);
  void cut(Device& device, Parts::iterator part, std::uint64_t begin, std::uint64_t end);
  void forget_bytes(BioSlot bio, std::uint64_t bytes);

  std::map<DeviceNumber, Device> devices_;
  std::vector<Bio> bios_;
  std::vector<BioSlot> free_;
  struct Recent {
    std::uint64_t address = 0;
    BioSlot bio = 0;
    std::uint32_t generation = 0;
  };
  std::vector<Recent> recent_ =
      std::vector<Recent>(256);  ///< by address, for the further records of a bio, which follow at once
  std::uint64_t bios_seen_ = 0, bytes_ = 0;
};

/// That a worker reads [pos, pos + (end - begin)) of a file for bytes [begin, end) of a request's device.
struct Backing {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t pos = 0;
  std::uint64_t begin_ns = 0;  ///< when the worker began to read
  bool late = false;           ///< begin_ns is when it ended: said once the whole range had been seen
  std::uint32_t file = 0;      ///< for the caller: which file
  bool direct = false;
};

/// What is known about a request that is served by a file and has not completed.
struct Serving {
  DeviceNumber dev = 0;
  std::uint64_t order = 0;        ///< steps with every piece of evidence of the session
  std::vector<Backing> backings;  ///< in the order they were seen
  Fills direct;                   ///< direct I/O of the worker for it, by position in the file
};

class Servings {
 public:
  Serving& at(std::uint64_t request) { return servings_[request]; }
  Serving* find(std::uint64_t request);
  void add(std::uint64_t request, DeviceNumber dev, const Backing& backing);
  void erase(std::uint64_t request) { servings_.erase(request); }
  [[nodiscard]] bool empty() const { return servings_.empty(); }
  /// Requests of `dev` with evidence for any of [begin, end), the latest first: an earlier one may be left from a
  /// request whose completion was missed. Only for recovery: it looks at every request.
  [[nodiscard]] std::vector<std::uint64_t> covering(DeviceNumber dev, std::uint64_t begin, std::uint64_t end) const;

 private:
  std::unordered_map<std::uint64_t, Serving> servings_;
  std::uint64_t seen_ = 0;
};

}  // namespace servedby::attribution
