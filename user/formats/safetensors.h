// SPDX-License-Identifier: Apache-2.0
// The layout of a safetensors file. The checks are those of the reference implementation (huggingface/safetensors,
// safetensors/src/tensor.rs) and of its README, plus duplicate names, which the README forbids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "error/error.h"
#include "formats/regular_file.h"

namespace servedby {

/// The reference reader refuses longer headers, bytes.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// One tensor. `begin` and `end` are absolute bytes of the file, [begin, end).
struct Tensor {
  std::string name;
  std::string dtype;                 ///< as written: "BF16", "F8_E4M3"; may be one that this program does not know
  std::vector<std::uint64_t> shape;  ///< empty for a scalar
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// Where everything in a model file lies. Byte counts throughout.
struct ModelLayout {
  std::uint64_t file_bytes = 0;
  std::uint64_t data_begin = 0;  ///< first byte after the header
  std::vector<Tensor>
      tensors;  ///< in the order of the file, not of the header; contiguous from data_begin to file_bytes

  [[nodiscard]] std::uint64_t data_bytes() const { return file_bytes - data_begin; }
  friend bool operator==(const ModelLayout&, const ModelLayout&) = default;
};

/// Bits of one element, or nothing for a dtype that the reference does not list.
[[nodiscard]] std::optional<unsigned> safetensors_dtype_bits(std::string_view dtype);

/// The length of the JSON header, bytes, from the beginning of a file (its first 64 bytes, or all of it if it is
/// shorter). Errors (Exit::bad_input), each naming the file: empty or shorter than a header, Git-LFS pointer, zip,
/// pickle, GGUF or HTML instead of safetensors, header past the limit or past the end of the file.
[[nodiscard]] Result<std::uint64_t> safetensors_header_bytes(std::string_view beginning, std::uint64_t file_bytes,
                                                             const std::string& path);

/// The layout from the JSON header, which must be the whole header without its length field. Pure; time and memory are
/// bounded by the header's length. Errors (Exit::bad_input): not UTF-8, not JSON, wrong fields, duplicate names, sizes
/// that overflow or disagree with the shape, holes, overlaps, a tensor out of range, a file that is shorter or longer
/// than its header says.
[[nodiscard]] Result<ModelLayout> parse_safetensors_header(std::string_view header, std::uint64_t file_bytes,
                                                           const std::string& path);

/// Reads and checks the header of an open file by pread(2), so a file truncated meanwhile is an error and not a SIGBUS.
[[nodiscard]] Result<ModelLayout> read_safetensors_header(const RegularFile& file);
/// The same for a path; the errors of open_regular_file as well.
[[nodiscard]] Result<ModelLayout> read_safetensors_header(const std::string& path);

}  // namespace servedby
