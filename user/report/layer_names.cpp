// SPDX-License-Identifier: Apache-2.0
#include "report/layer_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "record/text.h"

namespace servedby::report {
namespace {

/// Ends of `via` that are no device, with their words.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> ends{{
    {"hole", "holes of the file, which have no storage"},
    {"unwritten", "blocks that were allocated and never written"},
    {"zero", "blocks that were never written"},
    {"inline", "the inode itself"},
    {"squashfs-cache", "squashfs's own cache"},
    {"md-rebuilt", "data that md rebuilt from the other members"},
    {"md-stripe-cache", "md's stripe cache"},
    {"swap", "swap"},
}};

/// The same with an argument: "nfs:server".
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> servers{{
    {"dax:", "memory mapped by DAX, "},
    {"fuse:", "the FUSE daemon, PID "},
    {"nfs:", "the NFS server "},
    {"9p:", "the 9p server "},
}};

std::string hex_byte(char byte) { return "\\x" + hex_of(std::string_view(&byte, 1)); }

template <class Keep>
std::string escaped(std::string_view bytes, Keep keep) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(bytes), 1);
    const std::string_view character = bytes.substr(0, length);
    if (utf8_length(character) != 0 && keep(character)) {
      text += character;
    } else {
      for (const char byte : character) text += hex_byte(byte);
    }
    bytes.remove_prefix(length);
  }
  return text;
}

/// Disks in memory: the end of `via`, and no drive.
bool is_memory_disk(std::string_view name) {
  const std::size_t digits = name.starts_with("zram") ? 4 : name.starts_with("ram") ? 3 : name.size();
  return digits < name.size() && name.find_first_not_of("0123456789", digits) == std::string_view::npos;
}

bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return lead < 0x20 || lead == 0x7f;
  const auto next = static_cast<unsigned char>(character[1]);
  if (lead == 0xc2 && next < 0xa0) return true;  // C1: U+0080 to U+009F
  // U+202A to U+202E and U+2066 to U+2069 turn the direction of what follows.
  if (lead != 0xe2 || character.size() != 3) return false;
  const auto last = static_cast<unsigned char>(character[2]);
  return (next == 0x80 && last >= 0xaa && last <= 0xae) || (next == 0x81 && last >= 0xa6 && last <= 0xa9);
}

}  // namespace

Source source_of(const std::vector<std::string>& via) {
  if (via.empty() || via.back() == "unknown") return Source::unknown;
  const std::string& last = via.back();
  if (last == "page-cache") return via.size() == 1 ? Source::page_cache : Source::backing_cache;
  if (last == "swap") return Source::swap;
  const bool end = std::ranges::any_of(ends, [&](const auto& known) { return last == known.first; });
  const bool server = std::ranges::any_of(servers, [&](const auto& known) { return last.starts_with(known.first); });
  return end || server || is_memory_disk(last) ? Source::other : Source::device;
}

std::string via_text(const std::vector<std::string>& via) {
  return via.empty() ? "unknown" : printable(fmt::format("{}", fmt::join(via, " > ")));
}

std::string via_words(const std::vector<std::string>& via) {
  if (via.empty()) return "a layer that is not known";
  const std::string last = printable(via.back());
  std::string words = last;
  std::size_t named = 1;  // layers that the words speak of already
  switch (source_of(via)) {
    case Source::page_cache:
      return "the page cache";
    case Source::backing_cache:
      words = fmt::format("the backing file of {} in the host's page cache", printable(via[via.size() - 2]));
      named = 2;
      break;
    case Source::unknown:
      words = "a layer that is not known";
      break;
    case Source::swap:
    case Source::other:
      if (is_memory_disk(last)) words = last + ", a disk in memory";
      for (const auto& [name, meaning] : ends) {
        if (last == name) words = meaning;
      }
      for (const auto& [name, meaning] : servers) {
        if (last.starts_with(name)) words = std::string(meaning) + last.substr(name.size());
      }
      break;
    case Source::device:
      break;
  }
  if (via.size() <= named) return words;
  const std::vector<std::string> above(via.begin(), via.end() - static_cast<std::ptrdiff_t>(named));
  return fmt::format("{} through {}", words, printable(fmt::format("{}", fmt::join(above, " and "))));
}

std::string as_utf8(std::string_view bytes) {
  return escaped(bytes, [](std::string_view) { return true; });
}

std::string printable(std::string_view bytes) {
  return escaped(bytes, [](std::string_view character) { return !is_control(character); });
}

}  // namespace servedby::report
