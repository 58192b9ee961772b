// SPDX-License-Identifier: Apache-2.0
// From the JSON header to the checked layout. The JSON is taken as a stream of tokens: no tree is built, so memory
// stays within a small multiple of the header, and nesting cannot exhaust the stack.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "formats/safetensors.h"

namespace servedby {

namespace {

/// Names come from the file: keep messages on one line and of bounded length, whatever they hold.
std::string shown(std::string_view name) {
  constexpr std::size_t most = 80;
  std::string text = "'";
  for (const char c : name.substr(0, most)) text += static_cast<unsigned char>(c) < 0x20 || c == '\x7f' ? '?' : c;
  return text + (name.size() > most ? "…'" : "'");
}

/// Takes tokens in the order of the text; a method that returns false ends the parse, with `wrong` saying why.
class HeaderTokens {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  std::vector<Tensor> tensors;  ///< offsets still relative to the data
  std::string wrong;

  bool null() { return in_metadata_ && depth_ == 1 ? leave_value() : scalar("null"); }
  bool boolean(bool /*value*/) { return scalar("a boolean"); }
  bool number_integer(number_integer_t /*value*/) { return scalar("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) {
    return scalar("a fraction or a number of more than 64 bits");
  }
  bool binary(binary_t& /*value*/) { return scalar("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (skipping()) return true;
    if (in_array_ && field_ == Field::shape) {
      current_.shape.push_back(value);
      return true;
    }
    if (in_array_ && field_ == Field::offsets) {
      if (offsets_ == 2) return refuse("data_offsets of {} has more than two numbers", shown(current_.name));
      (offsets_++ == 0 ? current_.begin : current_.end) = value;
      return true;
    }
    return scalar("a number");
  }

  bool string(string_t& value) {
    if (skipping()) return true;
    if (in_metadata_ && depth_ == 2) return true;
    if (!in_array_ && depth_ == 2 && field_ == Field::dtype) {
      current_.dtype = std::move(value);
      return leave_value();
    }
    return scalar("a string");
  }

  bool start_object(std::size_t /*elements*/) {
    if (++depth_ > most_depth) return refuse("the header is nested more than {} deep", most_depth);
    if (depth_ <= 2 || skipping()) return true;
    return scalar("an object");
  }

  bool end_object() {
    --depth_;
    if (depth_ == 1) return in_metadata_ ? leave_value() : end_tensor();
    if (depth_ == 2 && field_ == Field::other) field_ = Field::none;
    return true;
  }

  bool start_array(std::size_t /*elements*/) {
    if (depth_ == 0) return refuse("the header is not a JSON object");
    if (++depth_ > most_depth) return refuse("the header is nested more than {} deep", most_depth);
    if (field_ == Field::other) return true;
    if (depth_ == 3 && !in_metadata_ && (field_ == Field::shape || field_ == Field::offsets)) {
      in_array_ = true;
      return true;
    }
    return scalar("an array");
  }

  bool end_array() {
    --depth_;
    if (depth_ != 2) return true;
    if (in_array_ && field_ == Field::offsets && offsets_ != 2)
      return refuse("data_offsets of {} has not two numbers", shown(current_.name));
    in_array_ = false;
    field_ = Field::none;
    return true;
  }

  bool key(string_t& name) {
    if (depth_ == 1) return start_entry(name);
    if (depth_ != 2 || in_metadata_) return true;
    field_ = name == "dtype"          ? Field::dtype
             : name == "shape"        ? Field::shape
             : name == "data_offsets" ? Field::offsets
                                      : Field::other;
    if (field_ == Field::other) return true;  // the reference ignores fields that it does not know
    const unsigned bit = 1U << static_cast<unsigned>(field_);
    if ((fields_ & bit) != 0) return refuse("tensor {} has two fields '{}'", shown(current_.name), name);
    fields_ |= bit;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& problem) {
    // 101 is a syntax error (UTF-8 included); its text is long and quotes the input.
    const bool encoding = std::string_view(problem.what()).find("UTF-8") != std::string_view::npos;
    return refuse("the header is not {} at its byte {}", encoding ? "UTF-8" : "JSON", position);
  }

 private:
  enum class Field : unsigned { none, dtype, shape, offsets, other };
  static constexpr unsigned most_depth = 32;
  static constexpr unsigned all_fields = 1U << 1U | 1U << 2U | 1U << 3U;

  template <class... Arguments>
  bool refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    if (wrong.empty()) wrong = fmt::format(text, std::forward<Arguments>(arguments)...);
    return false;
  }

  /// Inside the value of a field that nobody knows.
  [[nodiscard]] bool skipping() {
    if (field_ != Field::other) return false;
    if (depth_ == 2) field_ = Field::none;
    return true;
  }

  bool leave_value() {
    if (depth_ == 1) in_metadata_ = false;
    field_ = Field::none;
    return true;
  }

  bool scalar(const char* what) {
    if (skipping()) return true;
    if (depth_ == 0) return refuse("the header is not a JSON object");
    if (in_metadata_) return refuse("__metadata__ holds {}, only strings are allowed", what);
    if (depth_ == 1) return refuse("tensor {} is {}, not an object", shown(current_.name), what);
    return refuse("tensor {} has {} where its dtype, shape or data_offsets belong", shown(current_.name), what);
  }

  bool start_entry(string_t& name) {
    field_ = Field::none;
    if (name == "__metadata__") {
      if (seen_metadata_) return refuse("the header has two entries '__metadata__'");
      seen_metadata_ = in_metadata_ = true;
      return true;
    }
    current_ = Tensor{.name = std::move(name), .dtype = {}, .shape = {}};
    fields_ = 0;
    offsets_ = 0;
    return true;
  }

  bool end_tensor() {
    if (fields_ != all_fields) {
      const char* missing = (fields_ & 2U) == 0 ? "dtype" : (fields_ & 4U) == 0 ? "shape" : "data_offsets";
      return refuse("tensor {} has no {}", shown(current_.name), missing);
    }
    current_.shape.shrink_to_fit();
    tensors.push_back(std::move(current_));
    return true;
  }

  unsigned depth_ = 0;
  bool in_metadata_ = false;
  bool seen_metadata_ = false;
  bool in_array_ = false;
  Field field_ = Field::none;
  unsigned fields_ = 0;
  unsigned offsets_ = 0;
  Tensor current_;
};

/// What is wrong with the tensor's own size, or nothing. An unknown dtype's size is known from the offsets alone.
std::string wrong_size(const Tensor& tensor) {
  if (tensor.end < tensor.begin)
    return fmt::format("tensor {} ends at {} before it begins at {}", shown(tensor.name), tensor.end, tensor.begin);
  std::uint64_t bits = 1;
  for (const std::uint64_t side : tensor.shape)
    if (__builtin_mul_overflow(bits, side, &bits))
      return fmt::format("the shape of tensor {} overflows 64 bits", shown(tensor.name));
  const auto element = safetensors_dtype_bits(tensor.dtype);
  if (!element) return {};
  if (__builtin_mul_overflow(bits, std::uint64_t{*element}, &bits))
    return fmt::format("the size of tensor {} overflows 64 bits", shown(tensor.name));
  if (bits % 8 != 0) return fmt::format("tensor {} has {} bits, not whole bytes", shown(tensor.name), bits);
  if (bits / 8 != tensor.bytes())
    return fmt::format("tensor {} has {} bytes by its shape and {} by its offsets", shown(tensor.name), bits / 8,
                       tensor.bytes());
  return {};
}

/// What is wrong between tensors sorted by offset, relative to the data; nothing when they are contiguous from 0.
std::string wrong_neighbours(const std::vector<Tensor>& tensors, std::uint64_t data_bytes) {
  std::uint64_t reached = 0;
  const Tensor* before = nullptr;
  for (const Tensor& tensor : tensors) {
    if (tensor.begin < reached)
      return fmt::format("tensors {} and {} overlap at data byte {}", shown(before->name), shown(tensor.name),
                         tensor.begin);
    if (tensor.begin > reached) {
      if (tensor.begin >= data_bytes || tensor.end > data_bytes)
        return fmt::format("tensor {} is out of range: data bytes {} to {} of {}", shown(tensor.name), tensor.begin,
                           tensor.end, data_bytes);
      return fmt::format("{} bytes before tensor {} belong to no tensor", tensor.begin - reached, shown(tensor.name));
    }
    reached = tensor.end;
    before = &tensor;
  }
  return {};
}

/// A name that occurs twice, or nothing.
const Tensor* duplicate(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> by_name;
  by_name.reserve(tensors.size());
  for (const Tensor& tensor : tensors) by_name.push_back(&tensor);
  const auto name = [](const Tensor* tensor) -> const std::string& { return tensor->name; };
  std::ranges::sort(by_name, {}, name);
  const auto found = std::ranges::adjacent_find(by_name, {}, name);
  return found == by_name.end() ? nullptr : *found;
}

}  // namespace

Result<ModelLayout> parse_safetensors_header(std::string_view header, std::uint64_t file_bytes,
                                             const std::string& path) {
  const auto malformed = [&](std::string why, std::string todo = {}) {
    return std::unexpected(Error{"malformed safetensors", path, std::move(why), std::move(todo), Exit::bad_input});
  };
  // The JSON library skips a byte order mark and takes NUL for the end of its input; the reference does neither.
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || header[first] != '{') return malformed("its header does not begin with '{'");
  if (const std::size_t nul = header.find('\0'); nul != std::string_view::npos)
    return malformed(fmt::format("the header is not JSON at its byte {}", nul + 1));

  HeaderTokens tokens;
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &tokens)) return malformed(std::move(tokens.wrong));

  ModelLayout layout{.file_bytes = file_bytes, .data_begin = 8 + header.size(), .tensors = std::move(tokens.tensors)};
  if (const Tensor* twice = duplicate(layout.tensors))
    return malformed(fmt::format("two tensors are named {}", shown(twice->name)));
  for (const Tensor& tensor : layout.tensors)
    if (auto wrong = wrong_size(tensor); !wrong.empty()) return malformed(std::move(wrong));

  std::ranges::sort(layout.tensors, [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const std::uint64_t data_bytes = file_bytes > layout.data_begin ? file_bytes - layout.data_begin : 0;
  if (auto wrong = wrong_neighbours(layout.tensors, data_bytes); !wrong.empty()) return malformed(std::move(wrong));

  const std::uint64_t last = layout.tensors.empty() ? 0 : layout.tensors.back().end;
  std::uint64_t needed = 0;
  if (__builtin_add_overflow(last, layout.data_begin, &needed) ||
      needed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return malformed(
        fmt::format("tensor {} is out of range: no file has {} data bytes", shown(layout.tensors.back().name), last));
  if (needed > file_bytes)
    return malformed(fmt::format("truncated: needs {} bytes, has {}", needed, file_bytes),
                     "copy or download the file again");
  if (needed < file_bytes)
    return malformed(fmt::format("{} bytes after the last tensor belong to none: needs {} bytes, has {}",
                                 file_bytes - needed, needed, file_bytes));
  for (Tensor& tensor : layout.tensors) {
    tensor.begin += layout.data_begin;
    tensor.end += layout.data_begin;
  }
  return layout;
}

}  // namespace servedby
