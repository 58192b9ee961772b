// SPDX-License-Identifier: Apache-2.0
// reader WAY FILE [--direct] [--block BYTES] [--from BYTES] [--to BYTES] [--depth N]: reads a range of a file once, in
// order, in one of the ways that a program can. Fails on any short read, so that the scenario knows what was returned.
#include <fcntl.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& what, int error = errno) {
  std::fprintf(stderr, "reader: %s: %s\n", what.c_str(), std::strerror(error));
  std::exit(1);
}

struct Job {
  std::string path;
  bool direct = false;
  std::size_t block = 128 << 10;
  std::size_t from = 0, to = 0;
  unsigned depth = 8;  ///< in flight: aio and io_uring
  int fd = -1;

  [[nodiscard]] std::size_t size_at(std::size_t at) const { return std::min(block, to - at); }
};

/// Aligned for direct I/O; direct reads of the last block may ask for more than there is.
char* new_buffer(const Job& job) {
  void* memory = std::aligned_alloc(4096, (job.block + 4095) / 4096 * 4096);
  if (memory == nullptr) fail("memory");
  return static_cast<char*>(memory);
}

void each_block(const Job& job, const std::function<ssize_t(char* buffer, std::size_t at, std::size_t bytes)>& read) {
  char* buffer = new_buffer(job);
  for (std::size_t at = job.from; at < job.to; at += job.block) {
    const std::size_t bytes = job.size_at(at);
    const ssize_t got = read(buffer, at, job.direct ? job.block : bytes);
    if (got < 0) fail("read at " + std::to_string(at));
    if (static_cast<std::size_t>(got) != bytes) fail("short read at " + std::to_string(at), 0);
  }
  std::free(buffer);
}

off_t offset(std::size_t at) { return static_cast<off_t>(at); }

void by_read(const Job& job) {
  if (lseek(job.fd, offset(job.from), SEEK_SET) < 0) fail("lseek");
  each_block(job, [&](char* buffer, std::size_t, std::size_t bytes) { return ::read(job.fd, buffer, bytes); });
}

void by_pread(const Job& job) {
  each_block(
      job, [&](char* buffer, std::size_t at, std::size_t bytes) { return ::pread(job.fd, buffer, bytes, offset(at)); });
}

/// Blocks that begin and end at sectors inside pages; a last one that is shorter is left out.
void by_pread_unaligned(const Job& job) {
  Job part = job;
  part.from = 512;
  part.block = 255 * std::size_t{512};
  part.to = part.from + (job.to - part.from) / part.block * part.block;
  by_pread(part);
}

/// Two parts of unequal length.
std::vector<iovec> parts_of(char* buffer, std::size_t bytes) {
  const std::size_t first = bytes > 8192 ? 4096 : bytes;
  std::vector<iovec> parts{{buffer, first}};
  if (first < bytes) parts.push_back({buffer + first, bytes - first});
  return parts;
}

void by_readv(const Job& job) {
  if (lseek(job.fd, offset(job.from), SEEK_SET) < 0) fail("lseek");
  each_block(job, [&](char* buffer, std::size_t, std::size_t bytes) {
    const auto parts = parts_of(buffer, bytes);
    return ::readv(job.fd, parts.data(), static_cast<int>(parts.size()));
  });
}

void by_preadv(const Job& job) {
  each_block(job, [&](char* buffer, std::size_t at, std::size_t bytes) {
    const auto parts = parts_of(buffer, bytes);
    return ::preadv(job.fd, parts.data(), static_cast<int>(parts.size()), offset(at));
  });
}

/// What is there at once, and the rest by an ordinary read.
void by_nowait(const Job& job) {
  each_block(job, [&](char* buffer, std::size_t at, std::size_t bytes) -> ssize_t {
    const iovec part{buffer, bytes};
    ssize_t got = ::preadv2(job.fd, &part, 1, offset(at), RWF_NOWAIT);
    if (got < 0 && errno != EAGAIN) return got;
    got = std::max<ssize_t>(got, 0);
    while (static_cast<std::size_t>(got) < bytes) {
      const auto have = static_cast<std::size_t>(got);
      const ssize_t more = ::pread(job.fd, buffer + have, bytes - have, offset(at + have));
      if (more <= 0) return more < 0 ? more : got;
      got += more;
    }
    return got;
  });
}

/// Pages are dropped as soon as they were returned. Refused before 6.14.
void by_dontcache(const Job& job) {
  constexpr int dontcache = 0x80;  // RWF_DONTCACHE, newer than the C library's headers
  each_block(job, [&](char* buffer, std::size_t at, std::size_t bytes) {
    const iovec part{buffer, bytes};
    return ::preadv2(job.fd, &part, 1, offset(at), dontcache);
  });
}

/// A signal comes every other millisecond, and each time the process looks at it.
void by_pread_signalled(const Job& job) {
  static volatile std::sig_atomic_t seen = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { seen = seen + 1; };
  sigaction(SIGALRM, &action, nullptr);
  itimerval every{{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &every, nullptr);
  by_pread(job);
  every = {};
  setitimer(ITIMER_REAL, &every, nullptr);
  if (seen == 0) fail("no signal came", 0);
}

/// sendfile(2) into a socket that nobody empties, until a signal ends it: says how much it passed on.
void by_sendfile_interrupted(const Job& job) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
  struct sigaction action{};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval once{{0, 0}, {1, 0}};
  setitimer(ITIMER_REAL, &once, nullptr);
  off_t at = offset(job.from);
  const ssize_t got = ::sendfile(ends[1], job.fd, &at, job.to - job.from);
  if (got <= 0) fail("sendfile");
  std::printf("%zd\n", got);
}

void by_advice(const Job& job, bool readahead_call) {
  const std::size_t step = 64 << 10;  // less than any drive's read-ahead, which limits what one call does
  for (std::size_t at = job.from; at < job.to; at += step) {
    const std::size_t bytes = std::min(step, job.to - at);
    if (readahead_call ? ::readahead(job.fd, offset(at), bytes) != 0
                       : ::posix_fadvise(job.fd, offset(at), offset(bytes), POSIX_FADV_WILLNEED) != 0)
      fail("advice");
  }
}

/// As a loader that does not want to fill the cache: each block is dropped once it was read.
void by_pread_dropping(const Job& job) {
  each_block(job, [&](char* buffer, std::size_t at, std::size_t bytes) {
    const ssize_t got = ::pread(job.fd, buffer, bytes, offset(at));
    ::posix_fadvise(job.fd, offset(at), offset(bytes), POSIX_FADV_DONTNEED);
    return got;
  });
}

void by_aio(const Job& job, bool abandon) {
  const unsigned depth = job.depth;
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, depth, &context) != 0) fail("io_setup");
  std::vector<iocb> blocks(depth);
  std::vector<char*> buffers;
  for (unsigned i = 0; i < depth; ++i) buffers.push_back(new_buffer(job));
  std::size_t at = job.from;
  std::size_t outstanding = 0;
  const auto submit = [&](unsigned slot) {
    iocb& block = blocks[slot];
    block = {};
    block.aio_data = slot;
    block.aio_lio_opcode = IOCB_CMD_PREAD;
    block.aio_fildes = static_cast<std::uint32_t>(job.fd);
    block.aio_buf = reinterpret_cast<std::uint64_t>(buffers[slot]);
    block.aio_nbytes = job.direct ? job.block : job.size_at(at);
    block.aio_offset = offset(at);
    iocb* one = &block;
    if (syscall(SYS_io_submit, context, 1, &one) != 1) fail("io_submit");
    at += job.block;
    ++outstanding;
  };
  for (unsigned slot = 0; slot < depth && at < job.to; ++slot) submit(slot);
  if (abandon) _exit(0);
  while (outstanding != 0) {
    io_event event{};
    if (syscall(SYS_io_getevents, context, 1, 1, &event, nullptr) != 1) fail("io_getevents");
    --outstanding;
    const auto slot = static_cast<unsigned>(event.data);
    const auto begin = static_cast<std::size_t>(blocks[slot].aio_offset);
    if (event.res != static_cast<std::int64_t>(job.size_at(begin)))
      fail("short aio read", static_cast<int>(-event.res));
    if (at < job.to) submit(slot);
  }
  syscall(SYS_io_destroy, context);
  for (char* buffer : buffers) std::free(buffer);
}

enum class Ring { plain, fixed, polled, workers };

void by_ring(const Job& job, Ring kind) {
  const unsigned depth = job.depth;
  io_uring ring{};
  io_uring_params params{};
  if (kind == Ring::polled) {
    params.flags = IORING_SETUP_SQPOLL;
    params.sq_thread_idle = 2000;
  }
  if (const int failed = io_uring_queue_init_params(depth, &ring, &params); failed < 0) fail("io_uring", -failed);
  std::vector<char*> buffers;
  std::vector<iovec> registered;
  std::vector<std::size_t> begins(depth);
  for (unsigned i = 0; i < depth; ++i) {
    buffers.push_back(new_buffer(job));
    registered.push_back({buffers.back(), job.block});
  }
  if (kind == Ring::fixed && io_uring_register_buffers(&ring, registered.data(), depth) != 0)
    fail("registered buffers");
  std::size_t at = job.from;
  std::size_t outstanding = 0;
  const auto submit = [&](unsigned slot) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    while (entry == nullptr && kind == Ring::polled && io_uring_sqring_wait(&ring) >= 0)
      entry = io_uring_get_sqe(&ring);
    if (entry == nullptr) fail("no room in the ring", 0);
    const auto bytes = static_cast<unsigned>(job.direct ? job.block : job.size_at(at));
    if (kind == Ring::fixed)
      io_uring_prep_read_fixed(entry, job.fd, buffers[slot], bytes, at, static_cast<int>(slot));
    else
      io_uring_prep_read(entry, job.fd, buffers[slot], bytes, at);
    if (kind == Ring::workers) entry->flags |= IOSQE_ASYNC;
    entry->user_data = slot;
    begins[slot] = at;
    if (io_uring_submit(&ring) < 0) fail("submission");
    at += job.block;
    ++outstanding;
  };
  for (unsigned slot = 0; slot < depth && at < job.to; ++slot) submit(slot);
  while (outstanding != 0) {
    io_uring_cqe* event = nullptr;
    if (const int failed = io_uring_wait_cqe(&ring, &event); failed < 0) fail("completion", -failed);
    const auto slot = static_cast<unsigned>(event->user_data);
    if (event->res < 0 || static_cast<std::size_t>(event->res) != job.size_at(begins[slot]))
      fail("short read of a ring", event->res < 0 ? -event->res : 0);
    io_uring_cqe_seen(&ring, event);
    --outstanding;
    if (at < job.to) submit(slot);
  }
  io_uring_queue_exit(&ring);
  for (char* buffer : buffers) std::free(buffer);
}

void by_mapping(const Job& job, int flags, int advice) {
  void* mapping = mmap(nullptr, job.to, PROT_READ, MAP_SHARED | flags, job.fd, 0);
  if (mapping == MAP_FAILED) fail("mmap");
  if (advice != MADV_NORMAL && madvise(mapping, job.to, advice) != 0) fail("madvise");
  const auto* bytes = static_cast<const volatile char*>(mapping);
  unsigned sum = 0;
  for (std::size_t at = job.from; at < job.to; at += 4096) sum += static_cast<unsigned char>(bytes[at]);
  if (sum == 1) std::fputs("", stderr);  // so that it is looked at
  munmap(mapping, job.to);
}

void all_of(const Job& job, const std::function<ssize_t(std::size_t left)>& step) {
  for (std::size_t at = job.from; at < job.to;) {
    const ssize_t got = step(std::min(job.block, job.to - at));
    if (got < 0) fail("at " + std::to_string(at));
    if (got == 0) fail("ends early at " + std::to_string(at), 0);
    at += static_cast<std::size_t>(got);
  }
}

void by_sendfile(const Job& job) {
  const int out = open("/dev/null", O_WRONLY);
  off_t at = offset(job.from);
  all_of(job, [&](std::size_t left) { return ::sendfile(out, job.fd, &at, left); });
}

void by_splice(const Job& job) {
  const int out = open("/dev/null", O_WRONLY);
  int ends[2];
  if (pipe(ends) != 0) fail("pipe");
  loff_t at = offset(job.from);
  all_of(job, [&](std::size_t left) {
    const ssize_t got = ::splice(job.fd, &at, ends[1], nullptr, left, 0);
    for (ssize_t gone = 0; gone < got;) {
      const ssize_t moved = ::splice(ends[0], nullptr, out, nullptr, static_cast<std::size_t>(got - gone), 0);
      if (moved <= 0) fail("splice to /dev/null");
      gone += moved;
    }
    return got;
  });
}

void by_copy(const Job& job) {
  const std::string copy = job.path + ".copy";  // the kernel copies within a file system only
  const int out = open(copy.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (out < 0) fail(copy);
  loff_t at = offset(job.from);
  all_of(job, [&](std::size_t left) { return ::copy_file_range(job.fd, &at, out, nullptr, left, 0); });
  unlink(copy.c_str());
}

void by_threads(const Job& job) {
  constexpr std::size_t threads = 4;
  const std::size_t share = ((job.to - job.from) / threads + job.block - 1) / job.block * job.block;
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < threads; ++i) {
    Job part = job;
    part.from = std::min(job.to, job.from + i * share);
    part.to = std::min(job.to, part.from + share);
    readers.emplace_back([part] { by_pread(part); });
  }
  for (std::thread& reader : readers) reader.join();
}

void by_child(const Job& job) {
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    by_pread(job);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("the child failed", 0);
}

void by_unlinked(const Job& job) {
  if (unlink(job.path.c_str()) != 0) fail("unlink");
  by_pread(job);
}

const std::map<std::string, std::function<void(const Job&)>>& ways() {
  static const std::map<std::string, std::function<void(const Job&)>> all{
      {"read", by_read},
      {"pread", by_pread},
      {"readv", by_readv},
      {"preadv", by_preadv},
      {"unaligned", by_pread_unaligned},
      {"nowait", by_nowait},
      {"dontcache", by_dontcache},
      {"signalled", by_pread_signalled},
      {"sendfile-interrupted", by_sendfile_interrupted},
      {"readahead",
       [](const Job& job) {
         by_advice(job, true);
         by_pread(job);
       }},
      {"willneed",
       [](const Job& job) {
         by_advice(job, false);
         by_pread(job);
       }},
      {"advice-only", [](const Job& job) { by_advice(job, true); }},
      {"dropping", by_pread_dropping},
      {"aio", [](const Job& job) { by_aio(job, false); }},
      {"aio-abandon", [](const Job& job) { by_aio(job, true); }},
      {"uring", [](const Job& job) { by_ring(job, Ring::plain); }},
      {"uring-fixed", [](const Job& job) { by_ring(job, Ring::fixed); }},
      {"uring-polled", [](const Job& job) { by_ring(job, Ring::polled); }},
      {"uring-workers", [](const Job& job) { by_ring(job, Ring::workers); }},
      {"mmap", [](const Job& job) { by_mapping(job, 0, MADV_NORMAL); }},
      {"mmap-populate", [](const Job& job) { by_mapping(job, MAP_POPULATE, MADV_NORMAL); }},
      {"mmap-random", [](const Job& job) { by_mapping(job, 0, MADV_RANDOM); }},
      {"mmap-huge", [](const Job& job) { by_mapping(job, 0, MADV_HUGEPAGE); }},
      {"mmap-willneed", [](const Job& job) { by_mapping(job, 0, MADV_WILLNEED); }},
      {"sendfile", by_sendfile},
      {"splice", by_splice},
      {"copy", by_copy},
      {"threads", by_threads},
      {"child", by_child},
      {"unlinked", by_unlinked},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || !ways().contains(argv[1])) {
    std::fputs("usage: reader WAY FILE [--direct] [--block BYTES] [--from BYTES] [--to BYTES] [--depth N]; ways:",
               stderr);
    for (const auto& [name, way] : ways()) std::fprintf(stderr, " %s", name.c_str());
    std::fputs("\n", stderr);
    return 2;
  }
  Job job;
  job.path = argv[2];
  for (int i = 3; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--direct") {
      job.direct = true;
      continue;
    }
    if (i + 1 == argc) return 2;
    const std::size_t value = std::strtoull(argv[++i], nullptr, 10);
    if (option == "--block") job.block = value;
    if (option == "--from") job.from = value;
    if (option == "--to") job.to = value;
    if (option == "--depth") job.depth = static_cast<unsigned>(value);
  }
  job.fd = open(argv[2], O_RDONLY | (job.direct ? O_DIRECT : 0));
  if (job.fd < 0) fail(argv[2]);
  struct stat facts{};
  if (fstat(job.fd, &facts) != 0) fail(argv[2]);
  if (job.to == 0) job.to = S_ISBLK(facts.st_mode) ? 0 : static_cast<std::size_t>(facts.st_size);
  ways().at(argv[1])(job);
  return 0;
}
