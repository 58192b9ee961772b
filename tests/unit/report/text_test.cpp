// SPDX-License-Identifier: Apache-2.0
#include "report/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "report/headline.h"
#include "report/result_json.h"
#include "samples.h"

namespace servedby::report {
namespace {

using samples::GiB;
using samples::Sample;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Tree tree_of(const Sample& sample) { return result_tree(sample.result, sample.session, "servedby 0.1.0"); }

std::string text_of_sample(const Sample& sample, const TextStyle& style = {}) {
  const auto text = result_text(tree_of(sample), style);
  EXPECT_TRUE(text.has_value()) << text.error().line();
  return text.value_or("");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The line that begins with `start`, spaces squeezed, so that a test does not depend on the widths of columns.
std::string line_with(const std::string& text, const std::string& start) {
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with(start)) continue;
    std::string squeezed;
    for (const char letter : line) {
      if (letter != ' ' || squeezed.empty() || squeezed.back() != ' ') squeezed.push_back(letter);
    }
    return squeezed;
  }
  return "no line begins with " + start;
}

TEST(Text, TheAnswerStandsInTheFirstThreeLinesOfEverySample) {
  for (const Sample& sample : samples::all()) {
    SCOPED_TRACE(sample.name);
    const auto lines = headline(tree_of(sample));
    EXPECT_GE(lines.size(), 2U);
    EXPECT_LE(lines.size(), 3U);
    const auto shown = lines_of(text_of_sample(sample));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(shown[i], lines[i]);
      EXPECT_TRUE(lines[i].ends_with('.')) << lines[i];
      EXPECT_FALSE(lines[i].ends_with("..")) << lines[i];
    }
    EXPECT_EQ(shown[lines.size()], "");
  }
}

TEST(Text, WordsThatNobodyCanProveAreNeverUsed) {
  for (const Sample& sample : samples::all()) {
    std::string text = text_of_sample(sample, TextStyle{false, true, 20});
    for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    for (const char* word : {"physical", "flash", "nand"}) EXPECT_THAT(text, Not(HasSubstr(word))) << sample.name;
  }
}

TEST(Text, PlainWhereNoColourIsAsked) {
  for (const Sample& sample : samples::all()) EXPECT_THAT(text_of_sample(sample), Not(HasSubstr("\033")));
  EXPECT_THAT(text_of_sample(samples::drive(), TextStyle{.colour = true}), StartsWith("\033[1mThe drive: "));
  EXPECT_THAT(text_of_sample(samples::incomplete(), TextStyle{.colour = true}), StartsWith("\033[1;31mINCOMPLETE"));
}

TEST(Text, NoLineEndsInSpaces) {
  for (const Sample& sample : samples::all()) {
    for (const std::string& line : lines_of(text_of_sample(sample))) EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

TEST(Text, TheDrive) {
  const auto lines = headline(tree_of(samples::drive()));
  EXPECT_EQ(lines[0], "The drive: 2.00 GiB came from nvme0n1 in 3.21 s.");
  EXPECT_EQ(lines[1], "Traced (fentry); the kernel's counters agree to the byte (process, nvme0n1).");
  EXPECT_THAT(lines[2], HasSubstr("page cache"));
  const std::string text = text_of_sample(samples::drive());
  EXPECT_EQ(line_with(text, "nvme0n1"), "nvme0n1 2147483648 2.00 GiB 100.0 % 1073741824 1024 traced");
  EXPECT_EQ(line_with(text, "total"), "total 2147483648 2.00 GiB 1024");
  EXPECT_EQ(line_with(text, "process"), "process 2147491840 2147491840 agrees to the byte");
  EXPECT_EQ(line_with(text, "drive"), "drive nvme0n1 2147491840 2147491840 0 agrees to the byte");
  EXPECT_EQ(line_with(text, "  process:"), " process: first_returned 2147483648, metadata 8192");
  EXPECT_THAT(text, HasSubstr("nvme0n1 100.0 %  /models/model.safetensors\n"));
  EXPECT_THAT(text, HasSubstr("model-loader --fast model.safetensors, PID 4242; kernel 6.12.117+deb12-amd64; "
                              "2026-11-30T14:42:33Z; servedby 0.1.0\n"));
  EXPECT_THAT(text, Not(HasSubstr("Lost")));
  EXPECT_THAT(text, Not(HasSubstr("loop0")));  // it had no part in this
}

TEST(Text, ThePageCache) {
  const auto lines = headline(tree_of(samples::page_cache()));
  EXPECT_EQ(lines[0], "Not the drive: 2.00 GiB came from the page cache in 3.21 s; nvme0n1 read 0 bytes.");
  EXPECT_THAT(lines[2], HasSubstr("servedby evict PATH"));
}

TEST(Text, TheBackingFileInTheCache) {
  const auto lines = headline(tree_of(samples::backing_cache()));
  EXPECT_EQ(lines[0],
            "Not the drive: 39.55 GiB came from the backing file of loop0 in the host's page cache in 3.21 s; nvme0n1 "
            "read 0 bytes.");
  EXPECT_THAT(lines[2], HasSubstr("evict --through"));
  const std::string text = text_of_sample(samples::backing_cache());
  EXPECT_THAT(line_with(text, "loop0 > page-cache"), StartsWith("loop0 > page-cache 42470000000 39.55 GiB 100.0 %"));
  EXPECT_THAT(text, HasSubstr("loop0 reads /srv/images/models.img (buffered)\n"));
}

TEST(Text, ADriveThatReadALittleOrOnlyForOthersIsSaidToHave) {
  Sample sample = samples::backing_cache();
  samples::device_read(sample.session, samples::drive_number, 12288);
  EXPECT_THAT(headline(tree_of(sample))[0], HasSubstr("; nvme0n1 read 12.00 KiB for it."));
  sample = samples::backing_cache();
  sample.session.after.block[samples::drive_number].read_bytes += GiB;
  EXPECT_THAT(headline(tree_of(sample))[0], HasSubstr("; nvme0n1 read 0 bytes for it."));
}

TEST(Text, TheDriveBelowALoop) {
  EXPECT_EQ(headline(tree_of(samples::loop_drive()))[0],
            "The drive: 1.00 GiB came from nvme0n1 through loop0 in 3.21 s.");
}

TEST(Text, Mixed) {
  const Sample sample = samples::mixed();
  EXPECT_EQ(headline(tree_of(sample))[0],
            "Mixed: 3.00 GiB (75.0 %) came from nvme0n1, 1.00 GiB (25.0 %) from the page cache in 3.21 s.");
  const std::string text = text_of_sample(sample);
  EXPECT_THAT(text, HasSubstr("nvme0n1 75.0 %, page-cache 25.0 %  /models/model.safetensors\n"));
  EXPECT_THAT(text, HasSubstr("Mappings: 7 major faults, 81 minor; filled bytes from nvme0n1 131072 ("));
  EXPECT_THAT(text, HasSubstr("Read for nothing: 12288 bytes"));
  EXPECT_THAT(text, HasSubstr("Warmed by others: 4096 of the bytes"));
}

TEST(Text, ASmallRestDoesNotHideTheAnswer) {
  Sample sample{"rest", samples::result({samples::served({"nvme0n1"}, 2 * GiB), samples::served({"page-cache"}, 4096)}),
                samples::session()};
  EXPECT_EQ(headline(tree_of(sample))[0],
            "The drive: 2.00 GiB (99.9 %) came from nvme0n1, 4.00 KiB (<0.1 %) from the page cache in 3.21 s.");
}

TEST(Text, ManyLayersAreSummedUp) {
  Sample sample{"many",
                samples::result({samples::served({"nvme0n1"}, 4096), samples::served({"nvme1n1"}, 4096),
                                 samples::served({"page-cache"}, 4096), samples::served({"hole"}, 1024),
                                 samples::served({"nfs:server"}, 1024)}),
                samples::session()};
  EXPECT_THAT(headline(tree_of(sample))[0], HasSubstr(", 2.00 KiB from other layers in 3.21 s."));
}

TEST(Text, Unknown) {
  const auto lines = headline(tree_of(samples::unknown()));
  EXPECT_EQ(lines[0], "Not known: which layer had 2.00 GiB (100.0 %) of the 2.00 GiB that were read in 3.21 s.");
  EXPECT_EQ(lines[2],
            "Unknown because: the fill hook is off (hook fill-readahead is not attached: forced off by --without).");
  Sample sample = samples::unknown();
  sample.result.served_by.push_back(samples::served({"loop0", "unknown"}, 0));
  sample.result.served_by.back().why = "events were lost";
  EXPECT_THAT(text_of_sample(sample), HasSubstr("  loop0 > unknown: events were lost\n"));
  EXPECT_THAT(text_of_sample(sample), Not(HasSubstr("  unknown: the fill hook is off\n")));  // the third line has it
}

TEST(Text, CountersSayThatTheyInferAndWhatTheDoubtIs) {
  const auto lines = headline(tree_of(samples::counters()));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "Not traced (complete: false): the answer is inferred from the kernel's counters.");
  EXPECT_EQ(lines[1],
            "Not the drive: 39.55 GiB came from the backing file of loop0 in the host's page cache in 3.21 s; nvme0n1 "
            "read 0 bytes.");
  EXPECT_EQ(lines[2], "Inferred from counters, not traced: other readers of loop0 would look the same.");
  const std::string text = text_of_sample(samples::counters());
  EXPECT_THAT(text, HasSubstr("inferred\n"));
  EXPECT_THAT(text, Not(HasSubstr("Warning")));  // it would only repeat the doubt
  EXPECT_THAT(text, Not(HasSubstr("at least")));
  EXPECT_THAT(line_with(text, "Served by"), Not(HasSubstr("prefetched")));
  EXPECT_THAT(line_with(text, "process"), HasSubstr("not traced; counted by /proc/PID/task/*/io read_bytes"));
  EXPECT_FALSE(lost_something(tree_of(samples::counters())));
}

TEST(Text, CountersThatWouldBeCompleteSayWhatWouldTrace) {
  Sample sample = samples::counters();
  sample.result.complete = true;
  EXPECT_THAT(headline(tree_of(sample)).back(), HasSubstr("CAP_BPF"));
}

TEST(Text, CountersThatLostSomethingAreIncomplete) {
  Sample sample = samples::counters();
  sample.result.losses["processes_unseen"] = 2;
  EXPECT_TRUE(lost_something(tree_of(sample)));
  EXPECT_THAT(headline(tree_of(sample))[0], StartsWith("INCOMPLETE (lost: processes_unseen 2)"));
}

TEST(Text, IncompleteComesFirstAndNoNumberIsTheWhole) {
  const auto lines = headline(tree_of(samples::incomplete()));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], StartsWith("INCOMPLETE (lost: ring 123): "));
  EXPECT_EQ(lines[1], "Mixed: at least 3.00 GiB came from nvme0n1, at least 1.00 GiB from the page cache in 3.21 s.");
  EXPECT_EQ(lines[2],
            "Traced (fentry); the kernel's counters agree to the byte (process); nvme0n1 differs by +524288 bytes.");
  const std::string text = text_of_sample(samples::incomplete());
  EXPECT_THAT(line_with(text, "Served by"), HasSubstr("bytes (at least)"));
  EXPECT_THAT(text, Not(HasSubstr(" % ")));
  EXPECT_THAT(text, HasSubstr("\nLost: ring 123\n"));
}

TEST(Text, NoReads) {
  EXPECT_EQ(headline(tree_of(samples::no_reads()))[0], "No reads of files were seen in 3.21 s.");
  Sample sample = samples::no_reads();
  sample.result.mmap.filled_by = {{{"nvme0n1"}, 8192}, {{"page-cache"}, 4096}};
  EXPECT_EQ(headline(tree_of(sample))[0],
            "No reads of files were seen in 3.21 s; faults of its mappings filled 12.00 KiB.");
  sample = samples::no_reads();
  sample.result.reads.calls = 17;
  EXPECT_EQ(headline(tree_of(sample))[0], "17 read calls in 3.21 s returned no bytes.");
  sample.result.complete = false;
  EXPECT_THAT(headline(tree_of(sample))[0], StartsWith("INCOMPLETE: "));
}

TEST(Text, ALiveAttachNamesItsEdgesAndItsBracket) {
  const std::string text = text_of_sample(samples::attached());
  EXPECT_THAT(text, HasSubstr("differs by +524288 bytes, within the 1048576 in flight around the counters"));
  EXPECT_THAT(text, HasSubstr("At the edges of the session (not lost): reads_in_flight_at_start 8\n"));
  EXPECT_THAT(text, HasSubstr("model-loader, PID 4242 and 2 child processes; kernel"));
}

TEST(Text, ALedgerLineThatWasNotCheckedSaysWhy) {
  Sample sample = samples::drive();
  sample.result.ledger[1].residual_bytes.reset();
  sample.result.ledger[1].kernel_bytes.reset();
  sample.result.ledger[1].kernel_source = "not checked: queue/iostats is 0";
  EXPECT_THAT(headline(tree_of(sample))[1], HasSubstr("agree to the byte (process); not checked: nvme0n1."));
  EXPECT_THAT(text_of_sample(sample), HasSubstr("  not checked: queue/iostats is 0\n"));
}

TEST(Text, NothingOfAFileNameReachesTheTerminalUnescaped) {
  const std::string text = text_of_sample(samples::extreme());
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xe9"))));
  EXPECT_THAT(text, HasSubstr("/models/caf\\xe9 \xf0\x9f\x98\x80 \\x1b[31m\\x0a.bin"));
  EXPECT_THAT(text, HasSubstr("differs by -10 bytes"));
  EXPECT_THAT(text, HasSubstr("18437736874454810622"));
}

TEST(Text, ManyFilesAreCutAndCounted) {
  Sample sample = samples::drive();
  FileResult small = sample.result.files[0];
  small.reads.bytes_returned = 100;
  small.served_by = {samples::served({"nvme0n1"}, 100)};
  for (int i = 0; i < 30; ++i) sample.result.files.push_back(small);
  EXPECT_THAT(text_of_sample(sample), HasSubstr("  and 11 more files, 1100 bytes; --json has them all\n"));
}

TEST(Text, HooksOnlyOnRequest) {
  EXPECT_THAT(text_of_sample(samples::drive()), Not(HasSubstr("fentry:vfs_read")));
  const std::string text = text_of_sample(samples::drive(), TextStyle{.hooks = true});
  EXPECT_EQ(line_with(text, "read-entry"), "read-entry fentry:vfs_read 1024 0");
  EXPECT_EQ(line_with(text, "scheduler"), "scheduler not attached not asked for");
}

TEST(Text, AContradictionIsRefused) {
  Tree tree = tree_of(samples::drive());
  tree["served_by"][0]["bytes"] = 1;
  const auto text = result_text(tree, {});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().exit, Exit::bad_input);
  EXPECT_THAT(text.error().line(), HasSubstr("served_by: sums to 1"));
}

TEST(Text, ColourIsForTerminalsOnly) {
  EXPECT_FALSE(wants_colour(-1));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(wants_colour(1));
  ::unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace servedby::report
