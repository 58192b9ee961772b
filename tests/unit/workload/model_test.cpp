// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string_view>
#include <unordered_set>

#include "formats/safetensors.h"
#include "scratch.h"
#include "workload/model_shape.h"
#include "workload/model_writer.h"

namespace servedby {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t MiB = 1U << 20U;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Shares that a plan has.
struct Distribution {
  std::uint64_t tensors = 0, tiny = 0, large_bytes = 0, bytes = 0;
};
Distribution distribution(const ModelPlan& plan) {
  Distribution counts;
  for (const PlannedTensor& tensor : plan.tensors) {
    ++counts.tensors;
    counts.bytes += tensor.bytes;
    if (tensor.bytes < 65536) ++counts.tiny;
    if (tensor.bytes > 16 * MiB) counts.large_bytes += tensor.bytes;
  }
  return counts;
}

TEST(ModelPlan, IsExactlyAsLargeAsAskedAndValid) {
  for (const ModelLike like : {ModelLike::minimax, ModelLike::krea, ModelLike::flat}) {
    for (const std::uint64_t size : {MiB, MiB + 1, 3 * MiB + 4093, 100 * MiB, 256 * MiB, 40'000 * MiB}) {
      const auto plan = plan_model(like, size);
      ASSERT_TRUE(plan) << plan.error().line();
      const auto layout = parse_safetensors_header(std::string_view(plan->header).substr(8), size, "planned");
      ASSERT_TRUE(layout) << layout.error().line();
      EXPECT_EQ(layout->data_begin, plan->header.size());
      ASSERT_EQ(layout->tensors.size(), plan->tensors.size());
      for (std::size_t i = 0; i < plan->tensors.size(); ++i) {
        EXPECT_EQ(layout->tensors[i].name, plan->tensors[i].name);
        EXPECT_EQ(layout->tensors[i].begin % 8, 0U);
      }
    }
  }
}

TEST(ModelPlan, ManyTinyTensorsAndMostBytesInLargeOnes) {
  const auto minimax = distribution(plan_model(ModelLike::minimax, 256 * MiB).value());
  EXPECT_EQ(minimax.tensors, 46U);
  EXPECT_EQ(minimax.tiny, 31U);
  EXPECT_GT(minimax.large_bytes, minimax.bytes * 98 / 100);
  const auto large = distribution(plan_model(ModelLike::minimax, 4096 * MiB).value());
  EXPECT_EQ(large.tensors, 453U);
  EXPECT_EQ(large.tiny, 317U);
  EXPECT_GT(large.large_bytes, large.bytes * 99 / 100);
  const auto krea = distribution(plan_model(ModelLike::krea, 4096 * MiB).value());
  EXPECT_EQ(krea.tensors, 127U);
  EXPECT_EQ(krea.tiny, 78U);
  EXPECT_GT(krea.large_bytes, krea.bytes * 99 / 100);
  const auto flat = distribution(plan_model(ModelLike::flat, 256 * MiB).value());
  EXPECT_EQ(flat.tensors, 32U);
  EXPECT_EQ(flat.tiny, 0U);
}

TEST(ModelPlan, FewTensorsBeginAtAPage) {
  const auto plan = plan_model(ModelLike::minimax, 256 * MiB).value();
  std::uint64_t at = plan.header.size();
  int aligned = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (at % 4096 == 0) ++aligned;
    at += tensor.bytes;
  }
  EXPECT_EQ(at, plan.file_bytes);
  EXPECT_LE(aligned, 2);
}

TEST(ModelPlan, RefusesTooSmall) {
  const auto plan = plan_model(ModelLike::krea, MiB - 1);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().exit, Exit::usage);
}

using ModelWriter = ScratchTest;

TEST_F(ModelWriter, SameSeedSameBytes) {
  const auto plan = plan_model(ModelLike::krea, 3 * MiB).value();
  ASSERT_TRUE(write_model(in("a"), plan, {.seed = 1}));
  ASSERT_TRUE(write_model(in("b"), plan, {.seed = 1}));
  ASSERT_TRUE(write_model(in("c"), plan, {.seed = 2}));
  const std::string a = bytes_of(in("a"));
  EXPECT_EQ(a.size(), 3 * MiB);
  EXPECT_EQ(a, bytes_of(in("b")));
  EXPECT_NE(a, bytes_of(in("c")));
  EXPECT_EQ(files(), 3U);
  EXPECT_TRUE(read_safetensors_header(in("a")));
}

TEST_F(ModelWriter, IsNeitherSparseNorCompressible) {
  const auto plan = plan_model(ModelLike::minimax, 2 * MiB).value();
  ASSERT_TRUE(write_model(in("m"), plan, {}));
  struct stat status{};
  ASSERT_EQ(stat(in("m").c_str(), &status), 0);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, 2 * MiB);
  const std::string data = bytes_of(in("m")).substr(plan.header.size());
  // No byte is likelier than another, and no word occurs twice: nothing for a compressor.
  std::array<std::uint64_t, 256> counts{};
  std::unordered_set<std::string_view> words;
  for (const char byte : data) ++counts[static_cast<unsigned char>(byte)];
  for (std::size_t i = 0; i + 8 <= data.size(); i += 8) words.insert(std::string_view(data).substr(i, 8));
  EXPECT_EQ(words.size(), data.size() / 8);
  const auto [least, most] = std::ranges::minmax_element(counts);
  EXPECT_GT(*least, data.size() / 256 * 9 / 10);
  EXPECT_LT(*most, data.size() / 256 * 11 / 10);
}

TEST_F(ModelWriter, DoesNotOverwriteUnlessTold) {
  const auto plan = plan_model(ModelLike::krea, MiB).value();
  std::ofstream(in("m")) << "precious";
  const auto refused = write_model(in("m"), plan, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit, Exit::usage);
  EXPECT_EQ(bytes_of(in("m")), "precious");
  ASSERT_TRUE(write_model(in("m"), plan, {.force = true}));
  EXPECT_EQ(bytes_of(in("m")).size(), MiB);
  EXPECT_EQ(files(), 1U);
  ASSERT_FALSE(write_model(in(""), plan, {.force = true}));
  EXPECT_THAT(write_model(in("no/m"), plan, {}).error().line(), HasSubstr("make its folder first"));
}

TEST_F(ModelWriter, AFullDiskLeavesNothing) {
  ModelPlan plan = plan_model(ModelLike::krea, MiB).value();
  plan.file_bytes = std::uint64_t{1} << 61U;  // no file system here has that much
  const auto written = write_model(in("m"), plan, {});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().exit, Exit::bad_input);
  EXPECT_EQ(files(), 0U);
}

TEST_F(ModelWriter, AnEndingSignalLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto plan = plan_model(ModelLike::krea, 8 * MiB).value();
      const auto written =
          write_model(in("m"), plan, {.progress = [signal](std::uint64_t, std::uint64_t) { raise(signal); }});
      _exit(written ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal;
    EXPECT_EQ(files(), 0U) << signal;
  }
}

}  // namespace
}  // namespace servedby
