# Warnings are errors in our own code. Other people's headers come in as SYSTEM.
add_library(servedby_warnings INTERFACE)
target_compile_options(servedby_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual -Wcast-align -Wnull-dereference -Wdouble-promotion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports false positives inside its own <string>, <optional> and <expected> at -O2 (GCC bugs 105329, 105593).
  target_compile_options(servedby_warnings INTERFACE
    -Wno-restrict -Wno-maybe-uninitialized -Wno-null-dereference -Wno-array-bounds -Wno-stringop-overflow)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # GCC 13 still does so inside <vector>: where insert() makes room, its new memory may be null.
  target_compile_options(servedby_warnings INTERFACE -Wno-null-dereference)
endif()

set(SERVEDBY_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=")
if(SERVEDBY_SANITIZE)
  add_compile_options(-fsanitize=${SERVEDBY_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SERVEDBY_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this ccache does not keep what was compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  add_compile_options(-fpch-preprocess)
endif()
