// SPDX-License-Identifier: MIT
// Two steps of a long loop on two threads: what `next` and `pass` hand over is handled in order.
//
// The result is that of one thread, whatever the timing: items are handled one after another, in the order in which
// they were passed, and each is written by one side at a time. Without a second thread (not wanted, not to be had, or
// a machine of one CPU), an item is handled as it is passed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace frontgi::cachesim {

template <class Item, class Handle>
class Pipeline {
 public:
  Pipeline(Handle handle, bool threaded) : handle_(std::move(handle)) {
    if (!threaded || std::thread::hardware_concurrency() < 2) return;
    try {
      thread_ = std::thread([this] { handle_all(); });
    } catch (const std::system_error&) {
    }
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline() { end(); }

  // The item to be filled next; what it holds is an earlier one's.
  Item& next() {
    for (uint32_t handled = handled_.load(std::memory_order_acquire); filled_ - handled == kPlaces;
         handled = handled_.load(std::memory_order_acquire)) {
      handled_.wait(handled, std::memory_order_acquire);
    }
    return places_[filled_ % kPlaces].item;
  }

  void pass() {
    if (!thread_.joinable()) return handle_(places_[filled_ % kPlaces].item);
    if (++filled_ % kPassed == 0) publish();
  }

  // Returns when everything is handled; throws what `handle` threw first, after which nothing more was handled.
  void finish() {
    end();
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  // Waking the other side takes as long as a small item: they are shown to it a few at a time.
  static constexpr uint32_t kPlaces = 32, kPassed = 4;
  static_assert(kPlaces % kPassed == 0);  // else a full ring could hold items that were not shown

  struct Place {
    Item item{};
    bool ends = false;
  };

  void publish() {
    passed_.store(filled_, std::memory_order_release);
    passed_.notify_one();
  }

  void end() {
    if (!thread_.joinable()) return;
    next();
    places_[filled_ % kPlaces].ends = true;
    pass();
    publish();
    thread_.join();
  }

  void handle_all() {
    uint32_t passed = 0;
    for (uint32_t i = 0;; ++i) {
      while (passed == i) {
        passed_.wait(i, std::memory_order_acquire);
        passed = passed_.load(std::memory_order_acquire);
      }
      Place& place = places_[i % kPlaces];
      if (place.ends) return;
      try {
        if (!failed_) handle_(place.item);
      } catch (...) {
        failed_ = std::current_exception();
      }
      if ((i + 1) % kPassed != 0) continue;
      handled_.store(i + 1, std::memory_order_release);
      handled_.notify_one();
    }
  }

  Handle handle_;
  std::vector<Place> places_ = std::vector<Place>(kPlaces);  // not on the stack, which may be small
  uint32_t filled_ = 0;
  std::atomic<uint32_t> passed_{0}, handled_{0};
  std::exception_ptr failed_;
  std::thread thread_;
};

}  // namespace frontgi::cachesim
