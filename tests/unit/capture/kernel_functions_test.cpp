// SPDX-License-Identifier: Apache-2.0
#include "capture/kernel_functions.h"

#include <gtest/gtest.h>

namespace servedby::test {
namespace {

TEST(KernelFunctions, AreNamesBetweenNuls) {
  const KernelFunctions functions(std::string("\0vfs_read\0do_splice_read_old\0", 29));
  EXPECT_TRUE(functions.may_have("vfs_read"));
  EXPECT_TRUE(functions.may_have("do_splice_read_old"));
  EXPECT_FALSE(functions.may_have("do_splice_read"));
  EXPECT_FALSE(functions.may_have("read"));
}

TEST(KernelFunctions, WithoutBtfNothingIsCertainlyMissing) {
  EXPECT_TRUE(KernelFunctions(std::string()).may_have("anything"));
}

}  // namespace
}  // namespace servedby::test
