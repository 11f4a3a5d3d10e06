// SPDX-License-Identifier: MIT
// The Tensor boundary: checks that name the op, raw views of tensors, fresh outputs, and torch's thread pool.
//
// Everything a kernel relies on is checked here, once, before any parallel part: an exception thrown inside
// parallel_for loses its text. std::invalid_argument arrives in Python as ValueError, std::out_of_range as IndexError.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../hw/block_pool.h"
#include "../hw/machine.h"
#include "../kernels/kernels.h"
#include "../run/executor.h"

namespace frontgi {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

std::ostream& operator<<(std::ostream& text, const Tensor& t);  // "float32 [3, 4]"

// Throws std::invalid_argument("op: message (got ...)") unless `condition`. Tensors among the parts are put into words
// only then: doing it at every call was a third of a small one's time.
template <class... Parts>
void require(bool condition, const char* op, const Parts&... parts) {
  if (condition) return;
  std::ostringstream message;
  message << op << ": ";
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

// A CPU tensor of `dim` dimensions.
void require_cpu(const Tensor& t, int64_t dim, const char* op, const char* name);

DType dtype_of(const Tensor& t, const char* op, const char* name);
ScalarType accumulator_type(DType dtype);

// `t` with a contiguous last dimension (rows may keep their stride); copied if it has none.
Tensor with_unit_columns(const Tensor& t);

// The data of a 1-D tensor [size] in `type`; nullptr if absent. Contiguous copies are kept alive in `keep`.
const void* vector_data(const OptionalTensor& t, ScalarType type, int64_t size, const char* op, const char* name,
                        std::vector<Tensor>& keep);

// A [rows, columns] tensor like `like`, float or narrower or double, of unspecified content. A large one lies in a
// block of output_pool(), which gets it back when the tensor is freed.
Tensor new_matrix(const Tensor& like, int64_t rows, int64_t columns, ScalarType type);

// Adjacency tensors of an op, checked: rowptr int64 [rows + 1], col int32 or int64 [edges]. Unless `trusted` (a Graph,
// checked when it was made), their values too. Owns contiguous copies where needed.
struct CsrTensors {
  Tensor rowptr, col;
  int64_t rows, columns, edges;
  bool wide_index;
  const int64_t* rowptr_data;
  const void* col_data;
};
CsrTensors csr_tensors(const Tensor& rowptr, const Tensor& col, int64_t num_cols, bool trusted, const char* op);

// Whether this process is a fork of one whose pool may have had threads: whoever waits for them waits for ever.
bool pool_is_lost();

// torch's intra-op pool. In a forked child of a process that had used it, the pool would hang: one worker there, as in
// the child of any process that had threads.
class TorchExecutor final : public Executor {
 public:
  int64_t max_workers() const override;
  void run(int64_t workers, const std::function<void(int64_t)>& body) override;
};

Machine& machine();

BlockPool& output_pool();

}  // namespace frontgi
