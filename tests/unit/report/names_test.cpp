// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "report/layer_names.h"
#include "report/quantities.h"
#include "report/table.h"

namespace servedby::report {
namespace {

TEST(Quantities, Sizes) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1.00 KiB");
  EXPECT_EQ(size_text(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(size_text(2097152), "2.00 MiB");
  EXPECT_EQ(size_text(42470000000), "39.55 GiB");
  EXPECT_EQ(size_text(18446744073709551615ULL), "16.00 EiB");
}

TEST(Quantities, SharesNeverRoundToAllOrNothing) {
  EXPECT_EQ(share_text(1, 0), "");
  EXPECT_EQ(share_text(0, 5), "0.0 %");
  EXPECT_EQ(share_text(5, 5), "100.0 %");
  EXPECT_EQ(share_text(1, 3), "33.3 %");
  EXPECT_EQ(share_text(999999, 1000000), "99.9 %");
  EXPECT_EQ(share_text(1, 1000000), "<0.1 %");
  EXPECT_EQ(share_text((1ULL << 63) - 1, 1ULL << 63), "99.9 %");
}

TEST(Quantities, Times) {
  EXPECT_EQ(time_text(0), "0 ns");
  EXPECT_EQ(time_text(830'000), "830 us");
  EXPECT_EQ(time_text(12'300'000), "12.3 ms");
  EXPECT_EQ(time_text(3'210'000'000), "3.21 s");
  EXPECT_EQ(time_text(125'000'000'000), "2 m 05 s");
}

TEST(Quantities, Differences) {
  EXPECT_EQ(difference_text(0), "0");
  EXPECT_EQ(difference_text(4096), "+4096");
  EXPECT_EQ(difference_text(-4096), "-4096");
  EXPECT_EQ(difference_text(INT64_MIN), "-9223372036854775808");
}

TEST(LayerNames, Sources) {
  EXPECT_EQ(source_of({}), Source::unknown);
  EXPECT_EQ(source_of({"unknown"}), Source::unknown);
  EXPECT_EQ(source_of({"loop0", "unknown"}), Source::unknown);
  EXPECT_EQ(source_of({"page-cache"}), Source::page_cache);
  EXPECT_EQ(source_of({"loop0", "page-cache"}), Source::backing_cache);
  EXPECT_EQ(source_of({"md127", "nvme1n1"}), Source::device);
  EXPECT_EQ(source_of({"259:0"}), Source::device);
  EXPECT_EQ(source_of({"swap"}), Source::swap);
  EXPECT_EQ(source_of({"hole"}), Source::other);
  EXPECT_EQ(source_of({"zram0"}), Source::other);
  EXPECT_EQ(source_of({"dm-0", "ram1"}), Source::other);
  EXPECT_EQ(source_of({"ramdisk"}), Source::device);
  EXPECT_EQ(source_of({"fuse:12"}), Source::other);
  EXPECT_EQ(source_of({"dax:pmem0"}), Source::other);
}

TEST(LayerNames, Words) {
  EXPECT_EQ(via_words({"page-cache"}), "the page cache");
  EXPECT_EQ(via_words({"nvme0n1"}), "nvme0n1");
  EXPECT_EQ(via_words({"loop0", "page-cache"}), "the backing file of loop0 in the host's page cache");
  EXPECT_EQ(via_words({"loop1", "loop0", "page-cache"}),
            "the backing file of loop0 in the host's page cache through loop1");
  EXPECT_EQ(via_words({"loop1", "loop0", "nvme0n1"}), "nvme0n1 through loop1 and loop0");
  EXPECT_EQ(via_words({"hole"}), "holes of the file, which have no storage");
  EXPECT_EQ(via_words({"nfs:filer"}), "the NFS server filer");
  EXPECT_EQ(via_words({"loop0", "hole"}), "holes of the file, which have no storage through loop0");
  EXPECT_EQ(via_words({}), "a layer that is not known");
  EXPECT_EQ(via_text({"loop0", "nvme0n1"}), "loop0 > nvme0n1");
}

TEST(LayerNames, Printable) {
  EXPECT_EQ(printable("plain/name.bin"), "plain/name.bin");
  EXPECT_EQ(printable("a\x1b[2Jb\r\n\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x7f");
  EXPECT_EQ(printable("\xc3\xa9\xe2\x82\xac"), "\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // CSI as one character
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(as_utf8("\x1b\xff"), "\x1b\\xff");
}

TEST(Table, ColumnsAlignAndEmptyOnesAreLeftOut) {
  Table table({{"name", Table::Align::left}, {"bytes"}, {"never"}, {"note", Table::Align::left}});
  table.add({"a", "1000", "", "x"});
  table.add({"caf\xc3\xa9", "7", "", ""});
  EXPECT_EQ(table.text(2),
            "  name  bytes  note\n"
            "  a      1000  x\n"
            "  caf\xc3\xa9      7\n");
}

}  // namespace
}  // namespace servedby::report
