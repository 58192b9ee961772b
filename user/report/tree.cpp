// SPDX-License-Identifier: Apache-2.0
#include "report/tree.h"

#include <limits>
#include <utility>

namespace servedby::report {
namespace {

[[noreturn]] void malformed(const char* name, const char* why) { throw Malformed(std::string(name) + ": " + why); }

const Tree* find(const Tree& object, const char* name) {
  if (!object.is_object()) malformed(name, "its place is not an object");
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

const Tree& need(const Tree* found, const char* name) {
  if (found == nullptr) malformed(name, "missing");
  return *found;
}

std::uint64_t number(const Tree& value, const char* name) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer() && value.get<std::int64_t>() >= 0) return value.get<std::uint64_t>();
  malformed(name, "not a whole number of 0 or more");
}

}  // namespace

std::uint64_t number_of(const Tree& object, const char* name) { return number(need(find(object, name), name), name); }

std::optional<std::uint64_t> number_in(const Tree& object, const char* name) {
  const Tree* found = find(object, name);
  if (found == nullptr) return std::nullopt;
  return number(*found, name);
}

std::optional<std::int64_t> difference_in(const Tree& object, const char* name) {
  const Tree* found = find(object, name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number_integer()) malformed(name, "not a whole number");
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    malformed(name, "too large");
  }
  return found->get<std::int64_t>();
}

std::string text_of(const Tree& object, const char* name) {
  const Tree& value = need(find(object, name), name);
  if (!value.is_string()) malformed(name, "not a text");
  return value.get<std::string>();
}

std::optional<std::string> text_in(const Tree& object, const char* name) {
  if (find(object, name) == nullptr) return std::nullopt;
  return text_of(object, name);
}

bool flag_of(const Tree& object, const char* name) {
  const Tree& value = need(find(object, name), name);
  if (!value.is_boolean()) malformed(name, "neither true nor false");
  return value.get<bool>();
}

const Tree& list_of(const Tree& object, const char* name) {
  const Tree& value = need(find(object, name), name);
  if (!value.is_array()) malformed(name, "not a list");
  return value;
}

const Tree& object_of(const Tree& object, const char* name) {
  const Tree& value = need(find(object, name), name);
  if (!value.is_object()) malformed(name, "not an object");
  return value;
}

const Tree& list_in(const Tree& object, const char* name) {
  static const Tree none = Tree::array();
  return find(object, name) == nullptr ? none : list_of(object, name);
}

const Tree& object_in(const Tree& object, const char* name) {
  static const Tree none = Tree::object();
  return find(object, name) == nullptr ? none : object_of(object, name);
}

std::vector<std::string> texts_of(const Tree& object, const char* name) {
  std::vector<std::string> texts;
  for (const Tree& value : list_of(object, name)) {
    if (!value.is_string()) malformed(name, "not a list of texts");
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

std::vector<std::pair<std::string, std::uint64_t>> nonzero_in(const Tree& object, const char* name) {
  std::vector<std::pair<std::string, std::uint64_t>> counts;
  for (const auto& [key, value] : object_in(object, name).items()) {
    if (const std::uint64_t count = number(value, name); count != 0) counts.emplace_back(key, count);
  }
  return counts;
}

}  // namespace servedby::report
