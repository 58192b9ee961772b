// SPDX-License-Identifier: Apache-2.0
// Which file should be looked at, before a record is taken: bytes are about to be returned for which no I/O was seen.
#include <algorithm>
#include <cstring>

#include "attribution/state.h"

namespace servedby {

std::optional<UnplacedFile> Attribution::State::unplaced(const sb_read& read) {
  if (read.returned <= 0 || is_served(read.file.dev) ||
      read.pos > UINT64_MAX - static_cast<std::uint64_t>(read.returned))
    return std::nullopt;
  const std::uint64_t end = read.pos + static_cast<std::uint64_t>(read.returned);
  const File& file = resolver.file(resolver.file_index(FileKey(read.file)));
  if (file.layout) return std::nullopt;
  bool open = file.fills.announced_in(read.pos, end);
  if (!open && (read.flags & SB_READ_DIRECT) != 0 && (read.flags & (SB_READ_PAGE_CACHE | SB_READ_BLKDEV)) == 0) {
    const auto call = direct.find(call_key(read.head.tid, read.read));
    open = call == direct.end() || call->second.fills.absent_in(read.pos, end);
  }
  if (!open) return std::nullopt;
  const auto listing = listings.find(FileKey(read.opened));
  return UnplacedFile{read.file, listing == listings.end() ? std::string() : listing->second.path, read.tgid};
}

std::optional<UnplacedFile> Attribution::State::unplaced(const sb_request& request) {
  const Serving* serving = resolver.servings.empty() ? nullptr : resolver.servings.find(request.request);
  if (serving == nullptr || serving->dev != request.dev || request.status != 0) return std::nullopt;
  for (const Backing& backing : serving->backings) {
    const File& file = resolver.file(backing.file);
    const std::uint64_t end = backing.pos + (backing.end - backing.begin);
    if (file.layout) continue;
    if (!file.fills.announced_in(backing.pos, end) && !(backing.direct && serving->direct.absent_in(backing.pos, end)))
      continue;
    const Device* device = setup.stack.find(request.dev);
    if (device == nullptr || !device->loop) continue;
    return UnplacedFile{{file.key.ino, file.key.dev, file.key.generation}, device->loop->path, 0};
  }
  return std::nullopt;
}

std::optional<UnplacedFile> Attribution::unplaced(std::span<const std::byte> record) const {
  sb_head head{};
  if (record.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, record.data(), sizeof(head));
  const auto ask = [&]<class Record>(Record whole) -> std::optional<UnplacedFile> {
    if (std::min<std::size_t>(head.size, record.size()) < sizeof(whole)) return std::nullopt;
    std::memcpy(&whole, record.data(), sizeof(whole));
    return state_->unplaced(whole);
  };
  if (head.kind == SB_READ) return ask(sb_read{});
  if (head.kind == SB_REQUEST) return ask(sb_request{});
  return std::nullopt;
}

}  // namespace servedby
