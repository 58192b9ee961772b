// SPDX-License-Identifier: Apache-2.0
// Which tensors a test model has. The shapes are those of public architectures, scaled to a size; no checkpoint is
// copied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "error/error.h"

namespace servedby {

enum class ModelLike {
  minimax,  ///< video diffusion transformer in FP8: self and cross attention, MLP, a scale for each output channel
  krea,     ///< image diffusion transformer in BF16, parallel attention and MLP: fewer and larger tensors
  flat,     ///< equal tensors of 8 MiB, so that every tensor is read alike
};

[[nodiscard]] std::optional<ModelLike> model_like(std::string_view name);

struct PlannedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
};

/// A file that is yet to be written: `header` is the whole beginning (length field, JSON, padding), then the tensors'
/// bytes.
struct ModelPlan {
  std::vector<PlannedTensor>
      tensors;  ///< in the order of the file: widest element first, then by name, as the reference writer does
  std::string header;
  std::uint64_t file_bytes = 0;
};

/// The smallest model that has room for every kind of tensor, bytes.
inline constexpr std::uint64_t smallest_model_bytes = std::uint64_t{1} << 20U;

/// A model of exactly `file_bytes` bytes. As in real models most tensors are tiny and nearly all bytes are in large
/// ones; every tensor begins at a multiple of 8, rarely at one of the page size. Exit::usage below
/// smallest_model_bytes.
[[nodiscard]] Result<ModelPlan> plan_model(ModelLike like, std::uint64_t file_bytes);

}  // namespace servedby
