# Parsing the standard library, fmt and nlohmann_json takes longer than compiling our own code: they are parsed once for all
# rooms, and once more with GoogleTest for all unit tests. The preset `debug` builds without, so that every file keeps
# including what it uses.
set(servedby_common_headers
  <algorithm> <array> <chrono> <cstdint> <expected> <fstream> <functional> <map> <memory> <optional> <set> <span> <string>
  <string_view> <unordered_map> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cpp CONTENT "// Only a carrier of precompiled headers.\n")
function(servedby_carrier name)
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(${name} PRIVATE servedby_warnings fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} PRIVATE ${servedby_common_headers} ${ARGN})
endfunction()
servedby_carrier(servedby_headers)

# The headers of `carrier` for `target`, which must be compiled by the same options.
function(servedby_precompiled target carrier)
  target_link_libraries(${target} PRIVATE fmt::fmt)
  target_precompile_headers(${target} REUSE_FROM ${carrier})
endfunction()
