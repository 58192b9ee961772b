# Included by CMakeLists.txt here: streams of records into attribution.
add_executable(fuzz_attribution_feed attribution_feed.cpp
  ${user}/attribution/attribution.cpp ${user}/attribution/outcome.cpp ${user}/attribution/causes.cpp ${user}/attribution/fills.cpp
  ${user}/attribution/ledger.cpp ${user}/attribution/requests.cpp ${user}/attribution/resolve.cpp
  ${user}/attribution/tally.cpp ${user}/record/storage.cpp)
target_include_directories(fuzz_attribution_feed PRIVATE ${user} ${user}/..)
target_link_libraries(fuzz_attribution_feed PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
target_compile_options(fuzz_attribution_feed PRIVATE -g -O1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
target_link_options(fuzz_attribution_feed PRIVATE -fsanitize=fuzzer,address,undefined)
