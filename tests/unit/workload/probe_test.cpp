// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scratch.h"
#include "workload/aimdo_probe.h"
#include "workload/data_checksum.h"
#include "workload/model_shape.h"
#include "workload/model_writer.h"
#include "workload/sequential_probe.h"

namespace servedby {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t MiB = 1U << 20U;

/// A reader with windows so small that a test model fills the ring many times.
AimdoOptions small_shape(unsigned workers) {
  AimdoOptions options;
  options.shape.workers = workers;
  options.shape.task_bytes = 30'011;
  options.shape.window_bytes = 1'000'003;
  options.shape.queue = 4;  // the producer has to wait
  return options;
}

class Probe : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    ASSERT_TRUE(write_model(in("a"), plan_model(ModelLike::minimax, 9 * MiB + 5).value(), {.seed = 1}));
    ASSERT_TRUE(write_model(in("b"), plan_model(ModelLike::krea, 3 * MiB).value(), {.seed = 2}));
  }
  [[nodiscard]] ProbeResult aimdo(const std::vector<std::string>& paths, const AimdoOptions& options,
                                  const std::string& order = {}) const {
    auto set = open_tensor_set(paths).value();
    if (!order.empty()) {
      EXPECT_TRUE(apply_order_file(set, order));
    }
    return probe_aimdo(set, options).value();
  }
};

TEST_F(Probe, TheChecksumIsThatOfTheTensorsHoweverTheyAreRead) {
  const auto one = aimdo({in("a")}, small_shape(1));
  const auto eight = aimdo({in("a")}, small_shape(8));
  const auto real_shape = aimdo({in("a")}, {});
  const auto sequential = probe_sequential({in("a")}, {}).value();
  ASSERT_TRUE(one.checksum());
  EXPECT_EQ(one.checksum(), eight.checksum());
  EXPECT_EQ(one.checksum(), real_shape.checksum());
  EXPECT_EQ(one.checksum(), sequential.checksum());
  EXPECT_EQ(one.files[0].checksum, sequential.files[0].checksum);

  // The same from the bytes themselves.
  const auto layout = read_safetensors_header(in("a")).value();
  std::ifstream file(in("a"), std::ios::binary);
  std::string bytes(layout.file_bytes, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(one.files[0].checksum,
            checksum_part(bytes.data() + layout.data_begin, layout.data_bytes(), layout.data_begin));
}

TEST_F(Probe, AnotherOrderReadsTheSame) {
  const auto layout = read_safetensors_header(in("a")).value();
  std::ofstream order(in("order"));
  for (auto tensor = layout.tensors.rbegin(); tensor != layout.tensors.rend(); ++tensor)
    order << tensor->name << "\n\n";
  order.close();
  const auto ordered = aimdo({in("a")}, small_shape(8), in("order"));
  const auto plain = aimdo({in("a")}, small_shape(8));
  EXPECT_EQ(ordered.checksum(), plain.checksum());
  EXPECT_EQ(ordered.bytes(), plain.bytes());
}

TEST_F(Probe, SlicesFollowTheOrderFile) {
  auto set = open_tensor_set({in("a"), in("b")}).value();
  std::ofstream(in("order")) << "single_blocks.0.linear2.bias\r\nblocks.0.ffn.0.bias\nsingle_blocks.0.linear2.bias";
  ASSERT_TRUE(apply_order_file(set, in("order")));
  ASSERT_EQ(set.slices.size(), 3U);
  EXPECT_EQ(set.slices[0].file, 1U);
  EXPECT_EQ(set.slices[0].tensor, "single_blocks.0.linear2.bias");
  EXPECT_EQ(set.slices[1].file, 0U);
  EXPECT_EQ(set.slices[2].begin, set.slices[0].begin);
}

TEST_F(Probe, OrderFilesAreChecked) {
  auto set = open_tensor_set({in("a"), in("b")}).value();
  std::ofstream(in("order")) << "blocks.0.ffn.0.bias\nno.such.tensor\n";
  EXPECT_THAT(apply_order_file(set, in("order")).error().line(),
              HasSubstr("order line 2: no file of the set has a tensor 'no.such.tensor'"));
  std::ofstream(in("order")) << "zz_position_table\n";
  EXPECT_THAT(apply_order_file(set, in("order")).error().line(),
              HasSubstr("both have a tensor 'zz_position_table'; probe these files one at a time"));
  EXPECT_FALSE(apply_order_file(set, in("missing")));
}

TEST_F(Probe, SeveralFilesAreOneSet) {
  const auto both = aimdo({in("a"), in("b")}, small_shape(8));
  const auto sequential = probe_sequential({in("a"), in("b")}, {}).value();
  EXPECT_EQ(both.checksum(), sequential.checksum());
  EXPECT_NE(both.checksum(), aimdo({in("b"), in("a")}, small_shape(8)).checksum());
  const auto a = read_safetensors_header(in("a")).value();
  const auto b = read_safetensors_header(in("b")).value();
  EXPECT_EQ(both.bytes(), a.data_bytes() + b.data_bytes());
  EXPECT_EQ(sequential.bytes(), a.file_bytes + b.file_bytes);
  EXPECT_EQ(both.files[0].tensors, a.tensors.size());
  EXPECT_EQ(both.files[1].bytes, b.data_bytes());
}

TEST_F(Probe, CountsItsReads) {
  const auto set = open_tensor_set({in("a")}).value();
  const AimdoOptions options = small_shape(8);
  std::uint64_t tasks = 0;
  for (const Piece& piece : cut_into_pieces(set.slices, options.shape))
    tasks += cut_into_tasks(piece, options.shape).size();
  EXPECT_EQ(probe_aimdo(set, options)->calls, tasks);
  EXPECT_EQ(probe_sequential({in("a")}, {})->calls, 2U);  // 9 MiB + 5 in chunks of 8 MiB
}

TEST_F(Probe, MarkColdReadsTheSame) {
  AimdoOptions options = small_shape(8);
  const auto kept = aimdo({in("a")}, options);
  options.mark_cold = true;
  EXPECT_EQ(aimdo({in("a")}, options).checksum(), kept.checksum());
}

TEST_F(Probe, WithoutChecksumThereIsNone) {
  AimdoOptions options = small_shape(2);
  options.checksum = false;
  EXPECT_EQ(aimdo({in("a")}, options).checksum(), std::nullopt);
  const nlohmann::json json = probe_sequential({in("a")}, {.checksum = false}).value();
  EXPECT_FALSE(json.contains("checksum"));
}

TEST_F(Probe, PassesReadAgain) {
  const auto result = probe_sequential({in("a"), in("b")}, {.passes = 3}).value();
  EXPECT_EQ(result.bytes(), 3 * (9 * MiB + 5 + 3 * MiB));
  EXPECT_EQ(result.checksum(), probe_sequential({in("a"), in("b")}, {}).value().checksum());
}

TEST_F(Probe, SequentialReadsAnyFile) {
  std::ofstream(in("any")) << "GGUF or whatever";
  const auto result = probe_sequential({in("any")}, {}).value();
  EXPECT_EQ(result.bytes(), 16U);
  EXPECT_EQ(result.files[0].checksum, checksum_part("GGUF or whatever", 16, 0));
  EXPECT_FALSE(open_tensor_set({in("any")}));
}

TEST_F(Probe, AModelWithoutTensors) {
  std::ofstream(in("none"), std::ios::binary) << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  const auto result = aimdo({in("none")}, {});
  EXPECT_EQ(result.bytes(), 0U);
  EXPECT_EQ(result.calls, 0U);
  EXPECT_THAT(text_of(result), HasSubstr("aimdo: 0 B (0 bytes)"));
}

TEST_F(Probe, TruncatedDuringTheProbeIsLoud) {
  const auto set = open_tensor_set({in("a")}).value();
  ASSERT_EQ(truncate(in("a").c_str(), 5 * MiB), 0);
  const auto result = probe_aimdo(set, small_shape(8));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().exit, Exit::bad_input);
  EXPECT_THAT(result.error().line(), HasSubstr("short read of"));
  EXPECT_THAT(result.error().line(), HasSubstr("the file ended at"));
}

TEST_F(Probe, Json) {
  const auto result = aimdo({in("a")}, {});
  const nlohmann::json json = result;
  EXPECT_EQ(json["schema"], "servedby.probe/1");
  EXPECT_EQ(json["probe"], "aimdo");
  EXPECT_EQ(json["bytes"], result.bytes());
  EXPECT_EQ(json["checksum"], checksum_text(*result.checksum()));
  EXPECT_EQ(json["settings"]["workers"], 8);
  EXPECT_EQ(json["settings"]["task_bytes"], 2 * MiB);
  EXPECT_EQ(json["settings"]["window_bytes"], 64 * MiB);
  EXPECT_EQ(json["settings"]["mark_cold"], false);
  EXPECT_EQ(json["files"].size(), 1U);
  EXPECT_GT(json["wall_ns"], 0);
}

}  // namespace
}  // namespace servedby
