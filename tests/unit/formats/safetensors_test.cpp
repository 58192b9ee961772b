// SPDX-License-Identifier: Apache-2.0
#include "formats/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace servedby {
namespace {

using testing::HasSubstr;

constexpr const char* path = "m.safetensors";

std::string entry(const std::string& name, std::uint64_t begin, std::uint64_t end, const std::string& dtype = "U8") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, dtype, end - begin, begin,
                     end);
}

/// Parses a header over a file that has `data_bytes` after it.
Result<ModelLayout> parse(const std::string& header, std::uint64_t data_bytes) {
  return parse_safetensors_header(header, 8 + header.size() + data_bytes, path);
}

/// The line a person would read; empty if the header is accepted.
std::string problem(const std::string& header, std::uint64_t data_bytes) {
  const auto layout = parse(header, data_bytes);
  if (layout) return {};
  EXPECT_EQ(layout.error().exit, Exit::bad_input);
  EXPECT_EQ(layout.error().on, path);
  EXPECT_EQ(layout.error().line().find('\n'), std::string::npos);
  return layout.error().line();
}

std::string length_field(std::uint64_t length) {
  std::string field;
  for (unsigned shift = 0; shift < 64; shift += 8) field += static_cast<char>(length >> shift & 0xffU);
  return field;
}

std::string beginning_problem(const std::string& beginning, std::uint64_t file_bytes) {
  const auto length = safetensors_header_bytes(beginning, file_bytes, path);
  return length ? std::string{} : length.error().line();
}

TEST(SafetensorsHeader, SortsByOffsetAndMakesOffsetsAbsolute) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
                             R"("a":{"data_offsets":[0,8],"shape":[],"dtype":"F64"}})";
  const auto layout = parse(header, 12 + 8);
  ASSERT_TRUE(layout) << layout.error().line();
  const std::uint64_t data = 8 + header.size();
  EXPECT_EQ(layout->data_begin, data);
  EXPECT_EQ(layout->data_bytes(), 20U);
  ASSERT_EQ(layout->tensors.size(), 2U);
  EXPECT_EQ(layout->tensors[0], (Tensor{"a", "F64", {}, data, data + 8}));
  EXPECT_EQ(layout->tensors[1], (Tensor{"b", "BF16", {2, 3}, data + 8, data + 20}));
}

TEST(SafetensorsHeader, AcceptsWhatTheReferenceAccepts) {
  EXPECT_EQ(problem("{" + entry("a", 0, 4) + "}     \n", 4), "");  // padded
  EXPECT_EQ(problem("  {" + entry("a", 0, 4) + "}", 4), "");       // padded before
  EXPECT_EQ(problem("{}", 0), "");                                 // no tensors
  EXPECT_EQ(problem(R"({"__metadata__":{"a":"b"}})", 0), "");      // metadata only
  EXPECT_EQ(problem(R"({"__metadata__":null})", 0), "");
  EXPECT_EQ(problem("{" + entry("a", 0, 0) + "," + entry("b", 0, 4) + "}", 4), "");  // zero-size
  EXPECT_EQ(problem(R"({"a":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", 3), "");
  EXPECT_EQ(problem(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3), "");
  EXPECT_EQ(problem(R"({"a":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}})", 16), "");
  EXPECT_EQ(problem(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":{"x":[1,{"y":null}]}}})", 1), "");
  EXPECT_EQ(problem(R"({"a":{"extra":1,"more":"s","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "");
  EXPECT_EQ(problem("{" + entry("\u00e4\u4e2d", 0, 1) + "}", 1), "");  // UTF-8 names
}

TEST(SafetensorsHeader, UnknownDtypeHasItsSizeFromTheOffsets) {
  const auto layout = parse(R"({"a":{"dtype":"F2_NEW","shape":[1000],"data_offsets":[0,250]}})", 250);
  ASSERT_TRUE(layout) << layout.error().line();
  EXPECT_EQ(layout->tensors[0].bytes(), 250U);
  EXPECT_EQ(layout->tensors[0].dtype, "F2_NEW");
}

TEST(SafetensorsHeader, TruncatedFileSaysWhatItNeeds) {
  const std::string header = "{" + entry("a", 0, 100) + "}";
  const std::uint64_t needs = 8 + header.size() + 100;
  EXPECT_THAT(problem(header, 99), HasSubstr(fmt::format("truncated: needs {} bytes, has {}", needs, needs - 1)));
  EXPECT_THAT(
      problem(header, 101),
      HasSubstr(fmt::format("1 bytes after the last tensor belong to none: needs {} bytes, has {}", needs, needs + 1)));
}

TEST(SafetensorsHeader, HolesOverlapsAndRanges) {
  EXPECT_THAT(problem("{" + entry("a", 0, 8) + "," + entry("b", 4, 12) + "}", 12),
              HasSubstr("tensors 'a' and 'b' overlap at data byte 4"));
  EXPECT_THAT(problem("{" + entry("a", 0, 8) + "," + entry("b", 0, 8) + "}", 8),
              HasSubstr("'a' and 'b' overlap at data byte 0"));
  EXPECT_THAT(problem("{" + entry("a", 0, 4) + "," + entry("b", 8, 12) + "}", 12),
              HasSubstr("4 bytes before tensor 'b' belong to no tensor"));
  EXPECT_THAT(problem("{" + entry("a", 8, 12) + "}", 12), HasSubstr("8 bytes before tensor 'a' belong to no tensor"));
  EXPECT_THAT(problem("{" + entry("a", 0, 4) + "," + entry("b", 100, 104) + "}", 12),
              HasSubstr("tensor 'b' is out of range: data bytes 100 to 104 of 12"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[8,4]}})", 8),
              HasSubstr("ends at 4 before it begins at 8"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"X","shape":[],"data_offsets":[0,18446744073709551615]}})", 8),
              HasSubstr("out of range"));
}

TEST(SafetensorsHeader, SizesAreCheckedWithoutOverflow) {
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
              HasSubstr("the shape of tensor 'a' overflows 64 bits"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
              HasSubstr("the size of tensor 'a' overflows 64 bits"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("tensor 'a' has 12 bytes by its shape and 8 by its offsets"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2),
              HasSubstr("has 12 bits, not whole bytes"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,2]}})", 2),
              HasSubstr("a number of more than 64 bits"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,2]}})", 2), HasSubstr("a negative number"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,2]}})", 2), HasSubstr("a fraction"));
}

TEST(SafetensorsHeader, DuplicatesAreRefused) {
  EXPECT_THAT(problem("{" + entry("a", 0, 4) + "," + entry("a", 4, 8) + "}", 8),
              HasSubstr("two tensors are named 'a'"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("tensor 'a' has two fields 'dtype'"));
  EXPECT_THAT(problem(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("two entries '__metadata__'"));
}

TEST(SafetensorsHeader, StructureIsChecked) {
  EXPECT_THAT(problem("", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(problem("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(problem("\xef\xbb\xbf{}", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(problem("{", 0), HasSubstr("not JSON at its byte"));
  EXPECT_THAT(problem("{} x", 0), HasSubstr("not JSON at its byte 4"));
  EXPECT_THAT(problem(std::string("{}\0{", 4), 0), HasSubstr("not JSON at its byte 3"));
  EXPECT_THAT(problem("{\"\xff\":{}}", 0), HasSubstr("not UTF-8 at its byte 3"));
  EXPECT_THAT(problem(R"({"a":5})", 0), HasSubstr("tensor 'a' is a number, not an object"));
  EXPECT_THAT(problem(R"({"a":[]})", 0), HasSubstr("tensor 'a' has an array where its dtype"));
  EXPECT_THAT(problem(R"({"a":{}})", 0), HasSubstr("tensor 'a' has no dtype"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8"}})", 0), HasSubstr("tensor 'a' has no shape"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[0]}})", 0), HasSubstr("tensor 'a' has no data_offsets"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})", 0), HasSubstr("has not two numbers"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})", 0),
              HasSubstr("more than two numbers"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})", 0),
              HasSubstr("has an array where"));
  EXPECT_THAT(problem(R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})", 0), HasSubstr("has a number where"));
  EXPECT_THAT(problem(R"({"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}})", 0), HasSubstr("has a number where"));
  EXPECT_THAT(problem(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__ holds a number"));
  EXPECT_THAT(problem(R"({"__metadata__":{"a":{"b":"c"}}})", 0), HasSubstr("__metadata__ holds an object"));
  EXPECT_THAT(problem(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ holds an array"));
}

TEST(SafetensorsHeader, DeepNestingIsRefusedAndNotRecursed) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(problem(R"({"a":{"x":)" + deep + "}}", 0), HasSubstr("nested more than 32 deep"));
}

TEST(SafetensorsHeader, NamesInMessagesAreBoundedAndOnOneLine) {
  const std::string line = problem(R"({"a\nb)" + std::string(10'000, 'x') + R"(":5})", 0);
  EXPECT_THAT(line, HasSubstr("'a?bxxx"));
  EXPECT_LT(line.size(), 250U);
}

TEST(SafetensorsBeginning, SaysWhatTheFileIsInstead) {
  EXPECT_THAT(beginning_problem("", 0), HasSubstr("the file is empty"));
  EXPECT_THAT(beginning_problem("abc", 3), HasSubstr("truncated: needs at least 8 bytes, has 3"));
  EXPECT_THAT(beginning_problem("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", 130),
              HasSubstr("it is a git-LFS pointer, not the model; run 'git lfs pull'"));
  EXPECT_THAT(beginning_problem("PK\x03\x04 and so on", 5000), HasSubstr("it is a zip archive"));
  EXPECT_THAT(beginning_problem("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 5000), HasSubstr("it is a Python pickle"));
  EXPECT_THAT(beginning_problem("GGUF\x03", 5000), HasSubstr("it is a GGUF file"));
  EXPECT_THAT(beginning_problem("<!DOCTYPE html>", 5000), HasSubstr("it is a web page"));
}

TEST(SafetensorsBeginning, HeaderLengthIsCheckedAgainstLimitAndFile) {
  // The size of a real 1.29 M tensor header that the reference refuses.
  EXPECT_THAT(beginning_problem(length_field(132'095'296) + "{", 7'000'000'000),
              HasSubstr("its header would have 132095296 bytes, past the limit of 100000000"));
  EXPECT_EQ(beginning_problem(length_field(100'000'000) + "{", 7'000'000'000), "");
  EXPECT_THAT(beginning_problem(length_field(100'000'001) + "{", 7'000'000'000), HasSubstr("past the limit"));
  EXPECT_THAT(beginning_problem(length_field(UINT64_MAX), 64),
              HasSubstr("18446744073709551615 bytes, past the limit of 100000000, and the file has 64"));
  EXPECT_THAT(beginning_problem(length_field(57), 64),
              HasSubstr("truncated inside its header: needs 65 bytes, has 64"));
  EXPECT_EQ(beginning_problem(length_field(56), 64), "");
  // 0x80 0x02 is also how a header of 640 bytes begins.
  EXPECT_EQ(beginning_problem(length_field(0x280) + "{", 5000), "");
}

TEST(SafetensorsDtypes, AllOfTheReference) {
  EXPECT_EQ(safetensors_dtype_bits("F4"), 4U);
  EXPECT_EQ(safetensors_dtype_bits("F6_E3M2"), 6U);
  EXPECT_EQ(safetensors_dtype_bits("F8_E8M0"), 8U);
  EXPECT_EQ(safetensors_dtype_bits("BF16"), 16U);
  EXPECT_EQ(safetensors_dtype_bits("U32"), 32U);
  EXPECT_EQ(safetensors_dtype_bits("C64"), 64U);
  EXPECT_EQ(safetensors_dtype_bits("Q4_K"), std::nullopt);
}

}  // namespace
}  // namespace servedby
