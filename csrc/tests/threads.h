// SPDX-License-Identifier: MIT
// Executors for the tests: a thread for every worker, or all workers one after another, in order or in reverse.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../run/executor.h"

namespace frontgi::test {

// Every worker of a region on a new thread, all at once.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int64_t max_workers) : max_workers_(max_workers) {}
  int64_t max_workers() const override { return max_workers_; }
  void run(int64_t workers, const std::function<void(int64_t)>& body) override {
    std::vector<std::thread> threads;
    for (int64_t worker = 1; worker < workers; ++worker) threads.emplace_back(body, worker);
    if (workers > 0) body(0);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int64_t max_workers_;
};

// As a pool without a free thread would: a worker that waited for another would hang here.
class InTurnExecutor final : public Executor {
 public:
  InTurnExecutor(int64_t max_workers, bool reverse) : max_workers_(max_workers), reverse_(reverse) {}
  int64_t max_workers() const override { return max_workers_; }
  void run(int64_t workers, const std::function<void(int64_t)>& body) override {
    for (int64_t i = 0; i < workers; ++i) body(reverse_ ? workers - 1 - i : i);
  }

 private:
  int64_t max_workers_;
  bool reverse_;
};

struct NamedExecutor {
  std::string name;
  std::unique_ptr<Executor> executor;
};

// Emulated, arithmetic takes tens of times as long: the dealing of work is tested with one number of workers there.
#if defined(FRONTGI_EMULATED)
constexpr int64_t kWorkerCounts[] = {3};
#else
constexpr int64_t kWorkerCounts[] = {1, 2, 3, 7};
#endif

// Every way to run that must not change a bit.
inline std::vector<NamedExecutor> executors() {
  std::vector<NamedExecutor> all;
  for (const int64_t workers : kWorkerCounts) {
    const std::string count = std::to_string(workers);
    all.push_back({count + " threads", std::make_unique<ThreadExecutor>(workers)});
    all.push_back({count + " in turn", std::make_unique<InTurnExecutor>(workers, false)});
    all.push_back({count + " in reverse", std::make_unique<InTurnExecutor>(workers, true)});
  }
  return all;
}

}  // namespace frontgi::test
