// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace servedby {

/// A FIFO ring of fixed size between one producer and a pool: the producer blocks when it is full, workers when it is
/// empty.
template <class Item>
class TaskQueue {
 public:
  explicit TaskQueue(std::size_t entries) : ring_(entries) {}

  void push(Item item) {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [&] { return count_ < ring_.size(); });
    ring_[(first_ + count_++) % ring_.size()] = std::move(item);
    not_empty_.notify_one();
  }

  /// The oldest item; nothing after close() once the ring is empty.
  std::optional<Item> pop() {
    std::unique_lock lock(mutex_);
    not_empty_.wait(lock, [&] { return count_ != 0 || closed_; });
    if (count_ == 0) return std::nullopt;
    Item item = std::move(ring_[first_]);
    first_ = (first_ + 1) % ring_.size();
    --count_;
    not_full_.notify_one();
    return item;
  }

  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    not_empty_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable not_full_, not_empty_;
  std::vector<Item> ring_;
  std::size_t first_ = 0, count_ = 0;
  bool closed_ = false;
};

}  // namespace servedby
