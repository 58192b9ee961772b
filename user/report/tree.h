// SPDX-License-Identifier: Apache-2.0
// A result as the tree of its JSON, and checked access to it: a tree may come from a file that somebody wrote by hand.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace servedby::report {

using Tree = nlohmann::ordered_json;  ///< keeps the order in which docs/result.md explains the fields

/// A field that is missing or not of its type. what() is "served_by: not a list".
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Each throws Malformed where the field is there but not what it must be; `…_of` also where it is missing.
[[nodiscard]] std::uint64_t number_of(const Tree& object, const char* name);
[[nodiscard]] std::string text_of(const Tree& object, const char* name);
[[nodiscard]] bool flag_of(const Tree& object, const char* name);
[[nodiscard]] const Tree& list_of(const Tree& object, const char* name);
[[nodiscard]] const Tree& object_of(const Tree& object, const char* name);
[[nodiscard]] std::vector<std::string> texts_of(const Tree& object, const char* name);
[[nodiscard]] std::optional<std::uint64_t> number_in(const Tree& object, const char* name);
[[nodiscard]] std::optional<std::int64_t> difference_in(const Tree& object, const char* name);
[[nodiscard]] std::optional<std::string> text_in(const Tree& object, const char* name);
/// An empty list or object where the field is absent.
[[nodiscard]] const Tree& list_in(const Tree& object, const char* name);
[[nodiscard]] const Tree& object_in(const Tree& object, const char* name);

/// The members of an object of counts that are not 0, in order.
[[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> nonzero_in(const Tree& object, const char* name);

}  // namespace servedby::report
