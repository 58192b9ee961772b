// SPDX-License-Identifier: Apache-2.0
#include "workload/aimdo_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "workload/data_checksum.h"
#include "workload/task_queue.h"

namespace servedby {

namespace {

/// The ring of windows: anonymous memory that is there before the clock starts, as aimdo's pinned memory is.
class Windows {
 public:
  static Result<Windows> make(const AimdoShape& shape) {
    Windows windows;
    windows.window_bytes_ = shape.window_bytes;
    if (__builtin_mul_overflow(shape.window_bytes, std::uint64_t{shape.windows}, &windows.bytes_))
      windows.bytes_ = SIZE_MAX;
    void* memory =
        mmap(nullptr, windows.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
      return std::unexpected(system_error("cannot take memory for",
                                          fmt::format("{} windows of {} bytes", shape.windows, shape.window_bytes),
                                          errno, "use a smaller --window"));
    windows.memory_ = static_cast<char*>(memory);
    return windows;
  }
  Windows(Windows&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), window_bytes_(other.window_bytes_) {}
  Windows& operator=(Windows&&) = delete;
  ~Windows() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  [[nodiscard]] char* at(unsigned window, std::uint64_t offset) const {
    return memory_ + window * window_bytes_ + offset;
  }

 private:
  Windows() = default;
  char* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t window_bytes_ = 0;
};

/// One task with what a worker needs to do it.
struct Job {
  std::size_t slice = 0;
  Task task;
  char* into = nullptr;
};

class Pool {
 public:
  Pool(const TensorSet& set, const AimdoOptions& options)
      : set_(set), options_(options), queue_(options.shape.queue), sums_(set.files.size()) {}
  ~Pool() { stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Result<void> start() {
    try {
      for (unsigned i = 0; i < options_.shape.workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& problem) {
      return std::unexpected(system_error("cannot start", fmt::format("worker thread {}", workers_.size() + 1),
                                          problem.code().value(), "use fewer --workers"));
    }
    return {};
  }

  /// Reads one piece and returns when all of it is there: the barrier. False once any task has failed.
  bool read(const Piece& piece, const Windows& windows) {
    const auto tasks = cut_into_tasks(piece, options_.shape);
    {
      const std::scoped_lock lock(mutex_);
      open_ = tasks.size();
    }
    for (const Task& task : tasks) queue_.push({piece.slice, task, windows.at(piece.window, task.window_offset)});
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [&] { return open_ == 0; });
    return !error_;
  }

  void stop() {
    queue_.close();
    for (std::thread& worker : workers_)
      if (worker.joinable()) worker.join();
  }

  [[nodiscard]] std::optional<Error> error() const { return error_; }  // after stop() or between pieces
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  [[nodiscard]] std::uint64_t sum(std::size_t file) const { return sums_[file]; }

 private:
  void work() {
    while (const auto job = queue_.pop()) {
      auto done = read_task(*job);
      const std::scoped_lock lock(mutex_);
      if (!done && !error_) error_ = std::move(done.error());
      if (--open_ == 0) all_done_.notify_one();
    }
  }

  Result<void> read_task(const Job& job) {
    const Slice& slice = set_.slices[job.slice];
    const RegularFile& file = set_.files[slice.file].file;
    for (std::uint64_t done = 0; done < job.task.bytes;) {
      const auto offset = static_cast<off_t>(job.task.file_offset + done);
      const ssize_t got = pread(file.fd(), job.into + done, job.task.bytes - done, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return std::unexpected(system_error("cannot read", file.path(), errno));
      if (got == 0)
        return std::unexpected(
            Error{"short read of", file.path(),
                  fmt::format("truncated while being read: tensor '{}' needs {} bytes, the file ended at {}",
                              slice.tensor, slice.begin + slice.bytes, offset),
                  "copy or download the file again", Exit::bad_input});
      ++calls_;
      if (options_.mark_cold) posix_fadvise(file.fd(), offset, got, POSIX_FADV_DONTNEED);
      done += static_cast<std::uint64_t>(got);
    }
    if (options_.checksum) sums_[slice.file] += checksum_part(job.into, job.task.bytes, job.task.file_offset);
    return {};
  }

  const TensorSet& set_;
  const AimdoOptions& options_;
  TaskQueue<Job> queue_;
  std::vector<std::thread> workers_;
  std::vector<std::atomic<std::uint64_t>> sums_;
  std::atomic<std::uint64_t> calls_{0};
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::size_t open_ = 0;  // tasks of the piece that are not done yet
  std::optional<Error> error_;
};

}  // namespace

Result<ProbeResult> probe_aimdo(const TensorSet& set, const AimdoOptions& options) {
  auto windows = Windows::make(options.shape);
  if (!windows) return std::unexpected(windows.error());
  const std::vector<Piece> pieces = cut_into_pieces(set.slices, options.shape);

  Pool pool(set, options);
  if (auto started = pool.start(); !started) return std::unexpected(started.error());
  const auto begin = std::chrono::steady_clock::now();
  for (const Piece& piece : pieces)
    if (!pool.read(piece, *windows)) break;
  const auto end = std::chrono::steady_clock::now();
  pool.stop();
  if (auto error = pool.error()) return std::unexpected(*std::move(error));

  ProbeResult result;
  result.probe = "aimdo";
  result.calls = pool.calls();
  result.wall_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(end - begin).count());
  result.settings = {
      {"workers", std::uint64_t{options.shape.workers}}, {"task_bytes", options.shape.task_bytes},
      {"window_bytes", options.shape.window_bytes},      {"windows", std::uint64_t{options.shape.windows}},
      {"queue", std::uint64_t{options.shape.queue}},     {"mark_cold", options.mark_cold}};
  for (std::size_t i = 0; i < set.files.size(); ++i) {
    ProbedFile file{.path = set.files[i].file.path(), .tensors = 0, .checksum = {}};
    if (options.checksum) file.checksum = pool.sum(i);
    result.files.push_back(std::move(file));
  }
  for (const Slice& slice : set.slices) {
    result.files[slice.file].bytes += slice.bytes;
    ++*result.files[slice.file].tensors;
  }
  return result;
}

}  // namespace servedby
