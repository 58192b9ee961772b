// SPDX-License-Identifier: Apache-2.0
#include "error/error.h"

#include <cerrno>
#include <system_error>
#include <utility>

namespace servedby {

std::string Error::line() const {
  std::string text = what;
  if (!on.empty()) text += " " + on;
  if (!why.empty()) text += ": " + why;
  if (!todo.empty()) text += "; " + todo;
  return text;
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

Error system_error(std::string what, std::string on, int error_number, std::string todo) {
  const bool refused = error_number == EACCES || error_number == EPERM;
  return Error{std::move(what), std::move(on), errno_text(error_number), std::move(todo),
               refused ? Exit::not_permitted : Exit::bad_input};
}

}  // namespace servedby
