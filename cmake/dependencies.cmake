# Everything comes from the distribution's packages (tools/setup names them); the build needs no network.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(LIBBPF REQUIRED IMPORTED_TARGET libbpf>=1.1)
pkg_check_modules(LIBELF REQUIRED IMPORTED_TARGET libelf)
pkg_check_modules(LIBBLKID REQUIRED IMPORTED_TARGET blkid)
pkg_check_modules(LIBMOUNT REQUIRED IMPORTED_TARGET mount)
pkg_check_modules(LIBURING REQUIRED IMPORTED_TARGET liburing)

# The BPF side needs clang 16 or newer: bpf_core_type_matches and or-null tracepoint arguments.
find_program(BPF_CLANG NAMES clang-21 clang-20 clang-19 clang-18 clang-17 clang-16 clang REQUIRED)
# Ubuntu's own /usr/sbin/bpftool only starts the one that was made for the running kernel, which need not be installed.
file(GLOB bpftool_folders /usr/lib/linux-tools/*)
find_program(BPFTOOL NAMES bpftool HINTS ${bpftool_folders} PATHS /usr/sbin /sbin REQUIRED)
