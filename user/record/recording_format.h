// SPDX-License-Identifier: Apache-2.0
// The bytes of a recording, little-endian:
//
//   FileHeader
//   Block setup     the Session before the first record (absent where the capture never got that far)
//   Block records   … as many as needed
//   Block session   the Session at the end
//   Block trailer   Trailer
//
// A block is a BlockHeader and `stored` bytes. Records lie in a block as frames: a 64-bit length and the record, padded
// to a multiple of 8; none straddles two blocks. A Session is JSON text (strings that are not UTF-8 wrapped, see
// text.h). `state` in the file header is the sentinel: it becomes `complete` by the last write of all.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace servedby::recording_format {

static_assert(std::endian::native == std::endian::little, "the records of the kernel side are little-endian");

constexpr char magic[8] = {'s', 'e', 'r', 'v', 'e', 'd', 'b', 'y'};
constexpr std::uint32_t version = 1;
constexpr std::uint32_t block_magic = 0x6b626273;  ///< "sbbk"

enum State : std::uint32_t { incomplete = 0, complete = 1 };
enum Kind : std::uint32_t { setup = 1, records = 2, session = 3, trailer = 4 };
enum Encoding : std::uint32_t { plain = 0, zlib = 1 };

struct FileHeader {
  char magic[8];
  std::uint32_t version;         ///< of this layout
  std::uint32_t record_version;  ///< SB_RECORD_VERSION
  std::uint32_t state;
  std::uint32_t reserved[2];  ///< 0
  std::uint32_t checksum;     ///< crc32 of the bytes before it
};
static_assert(sizeof(FileHeader) == 32);

struct BlockHeader {
  std::uint32_t magic;
  std::uint32_t kind;
  std::uint32_t index;   ///< from 0: a block that is missing or doubled is noticed
  std::uint32_t stored;  ///< bytes in the file
  std::uint32_t raw;     ///< bytes when unpacked
  std::uint32_t encoding;
  std::uint32_t records;   ///< frames in it
  std::uint32_t checksum;  ///< crc32 of the fields before it and of the stored bytes
};
static_assert(sizeof(BlockHeader) == 32);

struct Trailer {
  std::uint64_t records;
  std::uint64_t record_bytes;  ///< without frames
  std::uint64_t file_bytes;    ///< of the whole file
};
static_assert(sizeof(Trailer) == 24);

constexpr std::size_t block_bytes = 256UL * 1024;     ///< a block of records is written when it would grow past this
constexpr std::size_t largest_block = 1024UL * 1024;  ///< unpacked, of records
constexpr std::size_t largest_session = 64UL * 1024 * 1024;
constexpr int deepest_session = 64;  ///< levels of nesting

[[nodiscard]] constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

[[nodiscard]] constexpr std::size_t largest(std::uint32_t kind) {
  return kind == records ? largest_block : kind == trailer ? sizeof(Trailer) : largest_session;
}

}  // namespace servedby::recording_format
