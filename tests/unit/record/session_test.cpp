// SPDX-License-Identifier: Apache-2.0
#include "record/session.h"

#include <gtest/gtest.h>

#include "record/text.h"
#include "sample_session.h"

namespace servedby {
namespace {

using nlohmann::json;

TEST(Session, EveryFieldSurvivesJsonText) {
  const Session before = sample_session();
  json tree = before;
  wrap_bytes(tree);
  json read = json::parse(tree.dump());
  unwrap_bytes(read);
  const auto after = read.get<Session>();

  EXPECT_EQ(json(after), json(before));
  EXPECT_EQ(after.kernel, before.kernel);
  EXPECT_EQ(after.host, before.host);
  EXPECT_EQ(after.monotonic_to_realtime_ns, -9007199254740993);
  EXPECT_EQ(after.clock_uncertainty_ns, 9007199254740993U);
  EXPECT_EQ(after.begin_ns, 18446744073709551614ULL);
  EXPECT_EQ(after.end_ns, 18446744073709551615ULL);
  EXPECT_EQ(after.page_size, 16384U);
  EXPECT_EQ(after.command, before.command);
  EXPECT_EQ(after.target_pid, 4242U);
  EXPECT_EQ(after.target_comm, "c\xffmm");
  EXPECT_EQ(after.target_exit, 3);
  EXPECT_TRUE(after.attached_live);
  EXPECT_EQ(after.tier, "kprobe");
  EXPECT_EQ(after.hooks, before.hooks);
  EXPECT_EQ(after.counts.losses, before.counts.losses);
  EXPECT_EQ(after.counts.notes, before.counts.notes);
  const sb_device_count& count = after.counts.devices.at(device_number(259, 5));
  EXPECT_EQ(count.target_read_bytes, 1ULL << 63);
  EXPECT_EQ(count.other_read_bytes, 2U);
  EXPECT_EQ(count.unseen_read_bytes, 3U);
  EXPECT_EQ(count.target_read_requests, 4U);
  EXPECT_EQ(count.other_read_requests, 5U);
  EXPECT_EQ(count.write_bytes, 6U);
  EXPECT_EQ(count.write_requests, 7U);
  EXPECT_EQ(after.counts.requests_in_flight_at_end, 8U);
  EXPECT_EQ(after.counts.reads_in_flight_at_end, 9U);
  EXPECT_EQ(after.stack, before.stack);
  EXPECT_EQ(after.before, before.before);
  EXPECT_EQ(after.after, before.after);
  EXPECT_EQ(after.bracket.process_bytes, (1ULL << 56) + 1);
  EXPECT_EQ(after.bracket.device_bytes, before.bracket.device_bytes);
  EXPECT_EQ(after.warnings, before.warnings);
}

TEST(Session, WhatIsNotKnownIsAbsentAndComesBackAsNotKnown) {
  const json tree = Session{};
  EXPECT_FALSE(tree.contains("target_exit"));
  EXPECT_FALSE(tree.get<Session>().target_exit.has_value());
  const json hook = json(sample_session()).at("hooks").at(1);
  EXPECT_FALSE(hook.contains("runs"));
  EXPECT_FALSE(hook.contains("recursion_misses"));
}

TEST(Session, CountersThatThisVersionDoesNotKnowAreRefusedAndMissingOnesAreZero) {
  json tree = sample_session();
  tree["counts"]["losses"].push_back(1);
  EXPECT_THROW(tree.get<Session>(), json::exception);
  tree["counts"]["losses"] = json::array({7});
  const auto session = tree.get<Session>();
  EXPECT_EQ(session.counts.losses[0], 7U);
  EXPECT_EQ(session.counts.losses[1], 0U);
}

TEST(Session, AMissingFieldOrABadDeviceNumberThrows) {
  json tree = sample_session();
  tree.erase("stack");
  EXPECT_THROW(tree.get<Session>(), json::exception);
  tree = sample_session();
  tree["bracket"]["device_bytes"]["nvme0n1"] = 1;
  EXPECT_THROW(tree.get<Session>(), json::exception);
}

TEST(Text, Utf8AsTheStandardDefinesIt) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_FALSE(is_utf8("\xc3"));              // cut
  EXPECT_FALSE(is_utf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(is_utf8("\xe0\x80\xaf"));      // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));  // past U+10FFFF
  EXPECT_TRUE(is_utf8("\xf4\x8f\xbf\xbf"));
  EXPECT_EQ(utf8_length("\xe2\x82\xac!"), 3U);
  EXPECT_EQ(utf8_length("\x80"), 0U);
}

TEST(Text, WrappedBytesAreHexadecimalAndNothingElseIsTouched) {
  json tree{{"a", "\xff\x01"}, {"b", json::array({"ok", "\xfe"})}, {"c", 5}};
  wrap_bytes(tree);
  EXPECT_EQ(tree.dump(), R"({"a":{"$hex":"ff01"},"b":["ok",{"$hex":"fe"}],"c":5})");
  unwrap_bytes(tree);
  EXPECT_EQ(tree.at("a"), "\xff\x01");
  EXPECT_EQ(tree.at("b").at(1), "\xfe");
  json bad{{"$hex", "f"}};
  EXPECT_THROW(unwrap_bytes(bad), json::exception);
  bad = json{{"$hex", "zz"}};
  EXPECT_THROW(unwrap_bytes(bad), json::exception);
}

}  // namespace
}  // namespace servedby
