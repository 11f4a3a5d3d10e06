// SPDX-License-Identifier: MIT
#include "boundary.h"

#include <algorithm>
#include <atomic>
#include <limits>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <dirent.h>
#endif

#include "../graph/convert.h"

namespace frontgi {
namespace {

// The pool is torch's: it has threads as soon as anyone, not these ops alone, has run a parallel region in it.
std::atomic<bool> had_threads{false};  // when it was about to fork
std::atomic<bool> lost{false};         // this process is a fork of one whose pool may have had threads

#if defined(__unix__) || defined(__APPLE__)
// More than the calling thread; also where threads cannot be counted.
bool has_threads() {
#if defined(__linux__)
  if (DIR* tasks = opendir("/proc/self/task")) {
    int64_t count = 0;
    while (const dirent* task = readdir(tasks)) count += task->d_name[0] != '.';
    closedir(tasks);
    return count > 1;
  }
#endif
  return true;
}

void before_fork() {
  had_threads.store(has_threads(), std::memory_order_relaxed);
  output_pool().lock();
}
void after_fork_in_parent() { output_pool().unlock(); }
void after_fork_in_child() {
  output_pool().unlock();
  if (had_threads.load(std::memory_order_relaxed)) lost.store(true, std::memory_order_relaxed);
}
const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
#endif

// Below, the allocator's own reuse is as good.
constexpr size_t kPooledBytes = 8 << 20;

int64_t element_bytes(ScalarType type) { return type == ScalarType::Double ? 8 : type == ScalarType::Float ? 4 : 2; }

int32_t shim_dtype(ScalarType type) {
  switch (type) {
    case ScalarType::Double:
      return aoti_torch_dtype_float64();
    case ScalarType::BFloat16:
      return aoti_torch_dtype_bfloat16();
    case ScalarType::Half:
      return aoti_torch_dtype_float16();
    default:  // no output is of another kind
      return aoti_torch_dtype_float32();
  }
}

const char* type_name(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Half:
      return "float16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Short:
      return "int16";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Bool:
      return "bool";
    default:
      return "another dtype";
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& text, const Tensor& t) {
  text << type_name(t.scalar_type()) << " [";
  for (int64_t d = 0; d < t.dim(); ++d) text << (d ? ", " : "") << t.size(d);
  return text << "]";
}

void require_cpu(const Tensor& t, int64_t dim, const char* op, const char* name) {
  require(t.is_cpu(), op, "'", name, "' must be on the CPU");
  require(t.dim() == dim, op, "'", name, "' must be ", dim, "-D (got ", t, ")");
}

DType dtype_of(const Tensor& t, const char* op, const char* name) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return DType::f32;
    case ScalarType::Double:
      return DType::f64;
    case ScalarType::BFloat16:
      return DType::bf16;
    case ScalarType::Half:
      return DType::f16;
    default:
      break;
  }
  require(false, op, "'", name, "' must be float32, float64, bfloat16 or float16 (got ", t, ")");
  return DType::f32;
}

ScalarType accumulator_type(DType dtype) { return dtype == DType::f64 ? ScalarType::Double : ScalarType::Float; }

Tensor with_unit_columns(const Tensor& t) {
  const bool usable = t.size(1) <= 1 || t.stride(1) == 1;
  // A row stride shorter than the row (an expanded tensor) is read like any other.
  return usable ? t : torch::stable::contiguous(t);
}

const void* vector_data(const OptionalTensor& t, ScalarType type, int64_t size, const char* op, const char* name,
                        std::vector<Tensor>& keep) {
  if (!t.has_value()) return nullptr;
  require_cpu(*t, 1, op, name);
  require(t->scalar_type() == type, op, "'", name, "' must be ", type_name(type), " (got ", *t, ")");
  require(t->size(0) == size, op, "'", name, "' must have ", size, " elements (got ", *t, ")");
  keep.push_back(t->is_contiguous() ? *t : torch::stable::contiguous(*t));
  return keep.back().const_data_ptr();
}

Tensor new_matrix(const Tensor& like, int64_t rows, int64_t columns, ScalarType type) {
  const int64_t sizes[] = {rows, columns}, strides[] = {std::max<int64_t>(columns, 1), 1};
  int64_t elements = 0, total_bytes = 0;
  const bool too_large = __builtin_mul_overflow(rows, columns, &elements) ||
                         __builtin_mul_overflow(elements, element_bytes(type), &total_bytes);
  require(!too_large, "frontgi", "an output of ", rows, " by ", columns, " elements is larger than any memory");
  const size_t bytes = static_cast<size_t>(total_bytes);
  if (bytes >= kPooledBytes) {
    if (void* block = output_pool().take(bytes)) {
      const auto give_back = [bytes](void* data) { output_pool().give(data, bytes); };
      return torch::stable::from_blob(block, {sizes, 2}, {strides, 2}, like.device(), type, give_back);
    }
  }
  // Not torch::stable::new_empty, which looks the op up by name at every call.
  AtenTensorHandle fresh;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(2, sizes, strides, shim_dtype(type), aoti_torch_device_type_cpu(), 0, &fresh));
  return Tensor(fresh);
}

BlockPool& output_pool() {
  static BlockPool* pool = new BlockPool(BlockPool::default_limit_bytes());  // tensors may outlive static objects
  return *pool;
}

CsrTensors csr_tensors(const Tensor& rowptr, const Tensor& col, int64_t num_cols, bool trusted, const char* op) {
  require_cpu(rowptr, 1, op, "rowptr");
  require_cpu(col, 1, op, "col");
  require(rowptr.scalar_type() == ScalarType::Long, op, "'rowptr' must be int64 (got ", rowptr, ")");
  require(col.scalar_type() == ScalarType::Int || col.scalar_type() == ScalarType::Long, op,
          "'col' must be int32 or int64 (got ", col, ")");
  require(rowptr.size(0) >= 1, op, "'rowptr' must have at least one element (got ", rowptr, ")");
  require(num_cols >= 0, op, "'num_cols' must not be negative (got ", num_cols, ")");
  require(col.scalar_type() == ScalarType::Long || num_cols <= std::numeric_limits<int32_t>::max(), op,
          "an int32 'col' cannot name every one of ", num_cols, " columns (got ", col, ")");
  CsrTensors csr{rowptr.is_contiguous() ? rowptr : torch::stable::contiguous(rowptr),
                 col.is_contiguous() ? col : torch::stable::contiguous(col),
                 rowptr.size(0) - 1,
                 num_cols,
                 col.size(0),
                 col.scalar_type() == ScalarType::Long,
                 nullptr,
                 nullptr};
  csr.rowptr_data = static_cast<const int64_t*>(csr.rowptr.const_data_ptr());
  csr.col_data = csr.col.const_data_ptr();
  if (!trusted) {
    TorchExecutor executor;
    if (csr.wide_index) {
      check_csr(op, csr.rowptr_data, csr.rows, static_cast<const int64_t*>(csr.col_data), csr.edges, num_cols,
                executor);
    } else {
      check_csr(op, csr.rowptr_data, csr.rows, static_cast<const int32_t*>(csr.col_data), csr.edges, num_cols,
                executor);
    }
  }
  return csr;
}

bool pool_is_lost() { return lost.load(std::memory_order_relaxed); }

int64_t TorchExecutor::max_workers() const {
  if (pool_is_lost()) return 1;
  return static_cast<int64_t>(torch::stable::get_num_threads());
}

void TorchExecutor::run(int64_t workers, const std::function<void(int64_t)>& body) {
  if (workers <= 1 || pool_is_lost()) {
    for (int64_t worker = 0; worker < workers; ++worker) body(worker);
    return;
  }
  torch::stable::parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) body(worker);
  });
}

Machine& machine() {
  static Machine instance;
  return instance;
}

}  // namespace frontgi
