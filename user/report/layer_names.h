// SPDX-License-Identifier: Apache-2.0
// Names for people: of layers, and of whatever the machine calls its files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace servedby::report {

/// Where the bytes of a `via` came from, as a reader groups it.
enum class Source { page_cache, backing_cache, device, swap, other, unknown };

/// By the last layer of `via`; an empty one is unknown.
[[nodiscard]] Source source_of(const std::vector<std::string>& via);

/// "loop0 > page-cache", for tables.
[[nodiscard]] std::string via_text(const std::vector<std::string>& via);

/// "the backing file of loop0 in the host's page cache", "nvme0n1 through loop0", "the page cache", for sentences.
[[nodiscard]] std::string via_words(const std::vector<std::string>& via);

/// Bytes as valid UTF-8: a byte that belongs to no character becomes the four characters \xNN.
[[nodiscard]] std::string as_utf8(std::string_view bytes);

/// as_utf8, and control characters (a file name may hold any) become \xNN too: nothing that a terminal would act on is
/// left.
[[nodiscard]] std::string printable(std::string_view bytes);

}  // namespace servedby::report
