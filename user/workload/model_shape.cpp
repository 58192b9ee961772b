// SPDX-License-Identifier: Apache-2.0
#include "workload/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "formats/safetensors.h"
#include "workload/size_text.h"

namespace servedby {

namespace {

using Tensors = std::vector<PlannedTensor>;

std::uint64_t bits_of(const std::string& dtype) { return safetensors_dtype_bits(dtype).value_or(8); }

void add(Tensors& tensors, std::string name, std::string dtype, std::vector<std::uint64_t> shape) {
  std::uint64_t bits = bits_of(dtype);
  for (const std::uint64_t side : shape) bits *= side;
  tensors.push_back({std::move(name), std::move(dtype), std::move(shape), bits / 8});
}

std::uint64_t bytes_of(const Tensors& tensors) {
  std::uint64_t sum = 0;
  for (const PlannedTensor& tensor : tensors) sum += tensor.bytes;
  return sum;
}

/// An FP8 matrix with a scale for each output channel and a bias: what quantised linear layers look like.
void add_fp8_linear(Tensors& tensors, const std::string& name, std::uint64_t out, std::uint64_t in) {
  add(tensors, name + ".weight", "F8_E4M3", {out, in});
  add(tensors, name + ".weight_scale", "F32", {out, 1});
  add(tensors, name + ".bias", "BF16", {out});
}

void add_minimax_ends(Tensors& tensors, std::uint64_t hidden) {
  add(tensors, "patch_embedding.weight", "BF16", {hidden, 16, 1, 2, 2});
  add(tensors, "patch_embedding.bias", "BF16", {hidden});
  add_fp8_linear(tensors, "time_embedding.0", hidden, 256);
  add(tensors, "head.head.weight", "BF16", {64, hidden});
  add(tensors, "head.head.bias", "BF16", {64});
  add(tensors, "head.modulation", "F32", {1, 2, hidden});
}

void add_minimax_block(Tensors& tensors, std::uint64_t block, std::uint64_t hidden) {
  const std::uint64_t mlp = hidden * 27 / 10 / 64 * 64;
  const std::string prefix = fmt::format("blocks.{}.", block);
  for (const char* attention : {"self_attn", "cross_attn"}) {
    for (const char* part : {"q", "k", "v", "o"})
      add_fp8_linear(tensors, fmt::format("{}{}.{}", prefix, attention, part), hidden, hidden);
    for (const char* norm : {"norm_q", "norm_k"})
      add(tensors, fmt::format("{}{}.{}.weight", prefix, attention, norm), "BF16", {hidden});
  }
  add(tensors, prefix + "norm3.weight", "BF16", {hidden});
  add(tensors, prefix + "norm3.bias", "BF16", {hidden});
  add(tensors, prefix + "modulation", "F32", {1, 6, hidden});
  add_fp8_linear(tensors, prefix + "ffn.0", mlp, hidden);
  add_fp8_linear(tensors, prefix + "ffn.2", hidden, mlp);
}

void add_krea_ends(Tensors& tensors, std::uint64_t hidden) {
  add(tensors, "img_in.weight", "BF16", {hidden, 64});
  add(tensors, "img_in.bias", "BF16", {hidden});
  add(tensors, "time_in.in_layer.weight", "BF16", {hidden, 256});
  add(tensors, "time_in.in_layer.bias", "BF16", {hidden});
  add(tensors, "final_layer.linear.weight", "BF16", {64, hidden});
  add(tensors, "final_layer.linear.bias", "BF16", {64});
}

void add_krea_block(Tensors& tensors, std::uint64_t block, std::uint64_t hidden) {
  const std::string prefix = fmt::format("single_blocks.{}.", block);
  const auto linear = [&](const char* name, std::uint64_t out, std::uint64_t in) {
    add(tensors, fmt::format("{}{}.weight", prefix, name), "BF16", {out, in});
    add(tensors, fmt::format("{}{}.bias", prefix, name), "BF16", {out});
  };
  linear("linear1", 7 * hidden, hidden);
  linear("linear2", hidden, 5 * hidden);
  linear("modulation.lin", 3 * hidden, hidden);
  for (const char* norm : {"norm.query_norm", "norm.key_norm"})
    add(tensors, fmt::format("{}{}.scale", prefix, norm), "BF16", {128});
}

/// An architecture: `hidden` is the width of the real thing, and the step that keeps all sides whole.
struct Architecture {
  std::uint64_t hidden;
  void (*add_ends)(Tensors&, std::uint64_t hidden);
  void (*add_block)(Tensors&, std::uint64_t block, std::uint64_t hidden);
};
constexpr std::uint64_t hidden_step = 8;

Tensors transformer(const Architecture& architecture, std::uint64_t blocks, std::uint64_t hidden) {
  Tensors tensors;
  architecture.add_ends(tensors, hidden);
  for (std::uint64_t block = 0; block < blocks; ++block) architecture.add_block(tensors, block, hidden);
  return tensors;
}

/// As many blocks of the real width as come nearest to `bytes`, at least one; then the greatest width that still fits.
Tensors fit_transformer(const Architecture& architecture, std::uint64_t bytes) {
  Tensors block;
  architecture.add_block(block, 0, architecture.hidden);
  const std::uint64_t block_bytes = bytes_of(block);
  const std::uint64_t blocks = std::max<std::uint64_t>(1, (bytes + block_bytes / 2) / block_bytes);
  std::uint64_t fits = hidden_step;
  for (std::uint64_t too_wide = 2 * architecture.hidden; too_wide - fits > hidden_step;) {
    const std::uint64_t middle = (fits + too_wide) / 2 / hidden_step * hidden_step;
    (bytes_of(transformer(architecture, blocks, middle)) <= bytes ? fits : too_wide) = middle;
  }
  return transformer(architecture, blocks, fits);
}

Tensors flat_tensors(std::uint64_t bytes) {
  constexpr std::uint64_t side = 2048;
  constexpr std::uint64_t tensor_bytes = 2 * side * side;
  Tensors tensors;
  for (std::uint64_t i = 0; i < bytes / tensor_bytes; ++i)
    add(tensors, fmt::format("layers.{:06}.weight", i), "BF16", {side, side});
  return tensors;
}

void sort_as_the_reference_writer(Tensors& tensors) {
  std::ranges::sort(tensors, [](const PlannedTensor& a, const PlannedTensor& b) {
    return std::tuple(bits_of(b.dtype), std::string_view(b.dtype), std::string_view(a.name)) <
           std::tuple(bits_of(a.dtype), std::string_view(a.dtype), std::string_view(b.name));
  });
}

/// Length field, JSON, and spaces to a multiple of 8.
std::string header_of(const Tensors& tensors) {
  std::uint64_t at = 0;
  std::string text = R"({"__metadata__":{"format":"pt"})";
  for (const PlannedTensor& tensor : tensors) {
    text += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name, tensor.dtype,
                        fmt::join(tensor.shape, ","), at, at + tensor.bytes);
    at += tensor.bytes;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string header;
  for (unsigned shift = 0; shift < 64; shift += 8) header += static_cast<char>(text.size() >> shift & 0xffU);
  return header + text;
}

}  // namespace

std::optional<ModelLike> model_like(std::string_view name) {
  if (name == "minimax") return ModelLike::minimax;
  if (name == "krea") return ModelLike::krea;
  if (name == "flat") return ModelLike::flat;
  return std::nullopt;
}

Result<ModelPlan> plan_model(ModelLike like, std::uint64_t file_bytes) {
  if (file_bytes < smallest_model_bytes)
    return std::unexpected(Error{"cannot make a model of", size_text(file_bytes),
                                 "it is too small for the tensors of a model",
                                 fmt::format("give --size {} or more", size_text(smallest_model_bytes)), Exit::usage});
  static constexpr Architecture minimax{5120, add_minimax_ends, add_minimax_block};
  static constexpr Architecture krea{3072, add_krea_ends, add_krea_block};
  // The rest of the file goes to one byte table, last in the file because its elements are the narrowest.
  constexpr const char* rest_name = "zz_position_table";
  // Leave room for the header: its length is known only when the tensors are.
  std::uint64_t room = file_bytes;
  Tensors tensors;
  for (int attempt = 0; attempt < 8; ++attempt) {
    tensors = like == ModelLike::flat      ? flat_tensors(room)
              : like == ModelLike::minimax ? fit_transformer(minimax, room)
                                           : fit_transformer(krea, room);
    add(tensors, rest_name, like == ModelLike::minimax ? "F8_E4M3" : "U8", {1});
    sort_as_the_reference_writer(tensors);
    const std::uint64_t used = bytes_of(tensors) + header_of(tensors).size() + 64;
    if (used <= file_bytes) break;
    room -= used - file_bytes;
  }
  // The last number of the header grows with the table, and the table shrinks with the header: a few rounds settle it.
  ModelPlan plan{.tensors = std::move(tensors), .header = {}, .file_bytes = file_bytes};
  PlannedTensor& table = plan.tensors.back();
  const std::uint64_t others = bytes_of(plan.tensors) - table.bytes;
  for (int round = 0; round < 8; ++round) {
    plan.header = header_of(plan.tensors);
    const std::uint64_t bytes = file_bytes - others - plan.header.size();
    if (bytes == table.bytes) break;
    table.bytes = bytes;
    table.shape = {bytes};
  }
  return plan;
}

}  // namespace servedby
