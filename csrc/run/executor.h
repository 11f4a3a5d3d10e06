// SPDX-License-Identifier: MIT
// Who runs a parallel region: torch's own pool in the product, plain threads in the C++ tests.
//
// A region is `workers` calls of one body. They may run at once or one after another on a single thread, so a worker
// must never wait for another; what has to come after all of them is a region of its own.
#pragma once

#include <cstdint>
#include <functional>

namespace frontgi {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual int64_t max_workers() const = 0;
  virtual void run(int64_t workers, const std::function<void(int64_t worker)>& body) = 0;
};

// One worker, on the calling thread.
class SerialExecutor final : public Executor {
 public:
  int64_t max_workers() const override { return 1; }
  void run(int64_t workers, const std::function<void(int64_t)>& body) override {
    for (int64_t worker = 0; worker < workers; ++worker) body(worker);
  }
};

}  // namespace frontgi
