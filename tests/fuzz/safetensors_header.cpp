// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as the beginning of a safetensors file. Whatever the parser accepts must be whole.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "formats/safetensors.h"

namespace {

void must(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "fuzz_safetensors: %s\n", what);
  std::abort();
}

void check_error(const servedby::Error& error) {
  must(error.exit == servedby::Exit::bad_input, "an error has the wrong exit code");
  must(!error.why.empty(), "an error does not say why");
  must(error.line().find('\n') == std::string::npos, "an error has more than one line");
  must(error.line().size() < 1000, "an error quotes its input at length");
}

void check_layout(const servedby::ModelLayout& layout, std::uint64_t file_bytes) {
  must(layout.file_bytes == file_bytes, "the layout has another size");
  std::uint64_t reached = layout.data_begin;
  std::set<std::string_view> names;
  for (const servedby::Tensor& tensor : layout.tensors) {
    must(tensor.begin == reached && tensor.end >= tensor.begin, "tensors are not contiguous");
    must(names.insert(tensor.name).second, "a name occurs twice");
    reached = tensor.end;
  }
  must(reached == file_bytes, "tensors do not fill the file");
}

}  // namespace

/// The input is a file, but for its last two bytes: they say how much longer than the input the file is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data), size - 2);
  const std::uint64_t file_bytes = file.size() + (data[size - 2] | std::uint64_t{data[size - 1]} << 8U);
  const auto length = servedby::safetensors_header_bytes(file.substr(0, 64), file_bytes, "fuzz");
  if (!length) {
    check_error(length.error());
    return 0;
  }
  must(*length + 8 <= file_bytes, "the header is longer than the file");
  if (*length + 8 > file.size()) return 0;  // the header itself lies in the part that is not there
  const auto layout = servedby::parse_safetensors_header(file.substr(8, *length), file_bytes, "fuzz");
  if (layout)
    check_layout(*layout, file_bytes);
  else
    check_error(layout.error());
  return 0;
}
