// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace servedby {

namespace {

constexpr std::uint64_t length_field_bytes = 8;
constexpr std::uint64_t beginning_bytes = 64;  // enough to tell what a file is instead

struct DtypeBits {
  std::string_view name;
  unsigned bits;
};
constexpr std::array<DtypeBits, 22> dtypes{
    {{"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},        {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"I64", 64},    {"U64", 64},    {"F64", 64},    {"C64", 64}}};

Error not_safetensors(const std::string& path, std::string why, std::string todo = {}) {
  return Error{"not safetensors", path, std::move(why), std::move(todo), Exit::bad_input};
}

/// What the file is instead, from its first bytes; nothing when it may well be safetensors.
std::optional<Error> another_format(std::string_view beginning, const std::string& path) {
  if (beginning.starts_with("version https://git-lfs"))
    return not_safetensors(path, "it is a git-LFS pointer, not the model", "run 'git lfs pull' in its repository");
  if (beginning.starts_with("PK\x03\x04"))
    return not_safetensors(path, "it is a zip archive (a PyTorch checkpoint?)", "convert it to safetensors");
  if (beginning.size() >= 2 && beginning[0] == '\x80' && beginning[1] >= 2 && beginning[1] <= 5 &&
      (beginning.size() < 9 || beginning[8] != '{'))
    return not_safetensors(path, "it is a Python pickle (an old PyTorch checkpoint?)", "convert it to safetensors");
  if (beginning.starts_with("GGUF")) return not_safetensors(path, "it is a GGUF file");
  if (beginning.starts_with("<!") || beginning.starts_with("<html"))
    return not_safetensors(path, "it is a web page, not the model", "download it again");
  return std::nullopt;
}

}  // namespace

std::optional<unsigned> safetensors_dtype_bits(std::string_view dtype) {
  const auto* const found = std::ranges::find(dtypes, dtype, &DtypeBits::name);
  if (found == dtypes.end()) return std::nullopt;
  return found->bits;
}

Result<std::uint64_t> safetensors_header_bytes(std::string_view beginning, std::uint64_t file_bytes,
                                               const std::string& path) {
  if (file_bytes == 0) return std::unexpected(not_safetensors(path, "the file is empty", "download it again"));
  if (auto other = another_format(beginning, path)) return std::unexpected(*std::move(other));
  if (file_bytes < length_field_bytes || beginning.size() < length_field_bytes)
    return std::unexpected(
        not_safetensors(path, fmt::format("truncated: needs at least {} bytes, has {}", length_field_bytes, file_bytes),
                        "download it again"));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_field_bytes; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(beginning[i])} << (8 * i);
  const std::uint64_t after_field = file_bytes - length_field_bytes;
  if (length > safetensors_header_limit) {
    // A real header of this size exists in the wild; anything longer than the file is no header at all.
    const std::string where = length > after_field ? fmt::format(", and the file has {} bytes", file_bytes) : "";
    return std::unexpected(not_safetensors(path, fmt::format("its header would have {} bytes, past the limit of {}{}",
                                                             length, safetensors_header_limit, where)));
  }
  if (length > after_field)
    return std::unexpected(not_safetensors(
        path,
        fmt::format("truncated inside its header: needs {} bytes, has {}", length + length_field_bytes, file_bytes),
        "copy or download the file again"));
  return length;
}

Result<ModelLayout> read_safetensors_header(const RegularFile& file) {
  // No byte is read twice: a trace of this program then shows each byte of the file returned once.
  std::string beginning(std::min(beginning_bytes, file.bytes()), '\0');
  if (auto read = read_exactly(file, 0, beginning.data(), beginning.size()); !read)
    return std::unexpected(read.error());
  const auto length = safetensors_header_bytes(beginning, file.bytes(), file.path());
  if (!length) return std::unexpected(length.error());
  std::string header = beginning.substr(length_field_bytes, *length);
  const std::size_t had = header.size();
  header.resize(*length);
  if (auto read = read_exactly(file, length_field_bytes + had, header.data() + had, header.size() - had); !read)
    return std::unexpected(read.error());
  return parse_safetensors_header(header, file.bytes(), file.path());
}

Result<ModelLayout> read_safetensors_header(const std::string& path) {
  const auto file = open_regular_file(path);
  if (!file) return std::unexpected(file.error());
  return read_safetensors_header(*file);
}

}  // namespace servedby
