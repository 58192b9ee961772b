// SPDX-License-Identifier: Apache-2.0
#include "record/text.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace servedby {
namespace {

constexpr const char* hex_key = "$hex";

struct Form {
  unsigned mask, lead;        ///< of the first byte
  std::size_t length;         ///< bytes
  std::uint32_t first, last;  ///< code points that need this many bytes
};

constexpr std::array<Form, 4> forms{{{0x80, 0x00, 1, 0x0, 0x7f},
                                     {0xe0, 0xc0, 2, 0x80, 0x7ff},
                                     {0xf0, 0xe0, 3, 0x800, 0xffff},
                                     {0xf8, 0xf0, 4, 0x10000, 0x10ffff}}};

std::string bytes_of_hex(const std::string& hex, const nlohmann::json& where) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned byte = 0;
    const char* const end = hex.data() + i + 2;
    if (std::from_chars(hex.data() + i, end, byte, 16).ptr != end) break;
    bytes.push_back(static_cast<char>(byte));
  }
  if (bytes.size() * 2 != hex.size()) {
    throw nlohmann::json::other_error::create(501, "not hexadecimal: " + hex, &where);
  }
  return bytes;
}

}  // namespace

std::size_t utf8_length(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const auto lead = static_cast<unsigned char>(bytes.front());
  for (const Form& form : forms) {
    if ((lead & form.mask) != form.lead) continue;
    if (bytes.size() < form.length) return 0;
    std::uint32_t point = lead & ~form.mask & 0xffU;
    for (std::size_t i = 1; i < form.length; ++i) {
      const auto next = static_cast<unsigned char>(bytes[i]);
      if ((next & 0xc0U) != 0x80U) return 0;
      point = point << 6 | (next & 0x3fU);
    }
    const bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return point >= form.first && point <= form.last && !surrogate ? form.length : 0;
  }
  return 0;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    hex.push_back(digits[value >> 4]);
    hex.push_back(digits[value & 15U]);
  }
  return hex;
}

void wrap_bytes(nlohmann::json& tree) {
  if (tree.is_string()) {
    const auto& text = tree.get_ref<const std::string&>();
    if (!is_utf8(text)) tree = nlohmann::json{{hex_key, hex_of(text)}};
  } else if (tree.is_structured()) {
    for (nlohmann::json& child : tree) wrap_bytes(child);
  }
}

void unwrap_bytes(nlohmann::json& tree) {
  if (tree.is_object() && tree.size() == 1 && tree.contains(hex_key)) {
    tree = bytes_of_hex(tree.at(hex_key).get<std::string>(), tree);
  } else if (tree.is_structured()) {
    for (nlohmann::json& child : tree) unwrap_bytes(child);
  }
}

}  // namespace servedby
