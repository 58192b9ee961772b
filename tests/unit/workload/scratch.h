// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace servedby {

/// A folder of its own in the working directory, which is in the build tree and so on a disk, not in a tmpfs.
class ScratchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "workload-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = std::filesystem::absolute(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string in(const std::string& name) const { return folder_ / name; }
  /// Names in the folder, hidden ones too.
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace servedby
