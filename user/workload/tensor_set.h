// SPDX-License-Identifier: Apache-2.0
// What a probe reads: the tensors of one or several model files, in an order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "error/error.h"
#include "formats/regular_file.h"
#include "formats/safetensors.h"

namespace servedby {

/// One slice of one file of the set: a tensor's bytes, [begin, begin + bytes).
struct Slice {
  std::size_t file = 0;  ///< index into TensorSet::files
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::string tensor;
};

struct SetFile {
  RegularFile file;
  ModelLayout layout;
};

struct TensorSet {
  std::vector<SetFile> files;
  std::vector<Slice> slices;  ///< in the order in which they are read
};

/// Opens the files and lists every tensor in the order of the files and of their bytes. Errors of
/// read_safetensors_header.
[[nodiscard]] Result<TensorSet> open_tensor_set(const std::vector<std::string>& paths);

/// Replaces the order of `set` by the one in `order_path`: one tensor name a line, empty lines ignored. Tensors that
/// are not named are not read; a name that occurs twice is read twice. Errors (Exit::bad_input): a name that no file
/// has, or that two files have.
[[nodiscard]] Result<void> apply_order_file(TensorSet& set, const std::string& order_path);

}  // namespace servedby
