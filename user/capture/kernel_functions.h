// SPDX-License-Identifier: Apache-2.0
// Which functions this kernel has, so that no program is loaded for one that it lacks.
#pragma once

#include <string>
#include <utility>

namespace servedby {

class KernelFunctions {
 public:
  /// Of the running kernel, from the names in its BTF.
  KernelFunctions();
  /// Of these names, each between two NULs.
  explicit KernelFunctions(std::string names) : names_(std::move(names)) {}

  /// False only where the kernel certainly has no such function: its BTF has no such name.
  [[nodiscard]] bool may_have(const std::string& function) const;

 private:
  std::string names_;  ///< empty: could not be read
};

}  // namespace servedby
