// SPDX-License-Identifier: MIT
// Matrices of every element type, in memory of exactly their size, and the number formats behind them.
//
// The formats are written from their definition (precision and exponent range), on doubles, and share nothing with the
// kernels' bit tricks. A matrix's memory is filled with NaN, and ends where its last element does: on the heap, so that
// AddressSanitizer sees an access one element too far, or against an unreadable page, because the sanitizer does not
// see what a masked load or store touches.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "../kernels/types.h"

namespace frontgi::test {

// ---- formats -------------------------------------------------------------------------------------------------------

struct Format {
  int precision;  // significant bits, the leading one included
  int min_exponent, max_exponent;
};
constexpr Format format_of(DType dtype) {
  if (dtype == DType::f64) return {53, -1022, 1023};
  if (dtype == DType::f32) return {24, -126, 127};
  if (dtype == DType::bf16) return {8, -126, 127};
  return {11, -14, 15};
}
constexpr DType accumulator_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

inline double unit_roundoff(DType dtype) { return std::ldexp(1.0, -format_of(dtype).precision); }
// The distance between subnormal numbers.
inline double smallest(DType dtype) {
  return std::ldexp(1.0, format_of(dtype).min_exponent - format_of(dtype).precision + 1);
}

// `value` in the precision and range of `dtype`: to nearest, ties to even.
inline double rounded(double value, DType dtype) {
  if (!std::isfinite(value) || value == 0 || dtype == DType::f64) return value;
  const Format format = format_of(dtype);
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(value), format.min_exponent) - format.precision + 1);
  const double result = std::nearbyint(value / spacing) * spacing;
  const bool overflow = std::fabs(result) >= std::ldexp(1.0, format.max_exponent + 1);
  return overflow ? std::copysign(std::numeric_limits<double>::infinity(), value) : result;
}

// The bits of a value that bf16 or fp16 holds exactly, and back. NaN is written quiet, without a payload.
inline uint16_t bits_of(double value, DType dtype) {
  const Format format = format_of(dtype);
  const int mantissa_bits = format.precision - 1;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int all_ones = 0x7fff >> mantissa_bits << mantissa_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | all_ones | 1 << (mantissa_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | all_ones);
  if (value == 0) return static_cast<uint16_t>(sign);
  const double magnitude = std::fabs(value);
  const int exponent = std::max(std::ilogb(magnitude), format.min_exponent);
  // Includes the leading one of a normal number, which adds 1 to the exponent's field, as it should.
  const int significand = static_cast<int>(std::ldexp(magnitude, mantissa_bits - exponent));
  return static_cast<uint16_t>(sign | (((exponent - format.min_exponent) << mantissa_bits) + significand));
}
inline double value_of(uint16_t bits, DType dtype) {
  const Format format = format_of(dtype);
  const int mantissa_bits = format.precision - 1;
  const int field = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double magnitude = std::ldexp(mantissa + (1 << mantissa_bits), field - 1 + format.min_exponent - mantissa_bits);
  if (field == 0) magnitude = std::ldexp(mantissa, format.min_exponent - mantissa_bits);
  if (field == 0x7fff >> mantissa_bits) magnitude = mantissa ? std::nan("") : std::numeric_limits<double>::infinity();
  return bits & 0x8000 ? -magnitude : magnitude;
}

// ---- memory --------------------------------------------------------------------------------------------------------

enum class Where {
  heap,
  guarded,  // an unreadable page follows; aligned to an element alone
  sparse,   // zeros, in memory only where they are touched: for offsets beyond 32 bits
};

class Memory {
 public:
  Memory(size_t bytes, Where where) : bytes_(bytes) {
    if (where == Where::heap) {
      start_ = static_cast<char*>(::operator new(bytes, kAlignment));
    } else if (where == Where::sparse) {
      mapped_bytes_ = bytes;
      mapped_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped_ == MAP_FAILED) throw std::bad_alloc();
      start_ = static_cast<char*>(mapped_);
      return;
    } else {
      const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      const size_t usable = (bytes + page - 1) / page * page;
      mapped_bytes_ = usable + page;
      mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped_ == MAP_FAILED) throw std::bad_alloc();
      if (mprotect(static_cast<char*>(mapped_) + usable, page, PROT_NONE) != 0) throw std::bad_alloc();
      start_ = static_cast<char*>(mapped_) + (usable - bytes);
    }
    std::memset(start_, 0xff, bytes);  // a NaN in every format
  }
  ~Memory() {
    if (mapped_) {
      munmap(mapped_, mapped_bytes_);
    } else {
      ::operator delete(start_, kAlignment);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* start() const { return start_; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{64};  // of a vector: streaming stores need it
  char* start_ = nullptr;
  size_t bytes_;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// ---- matrices ------------------------------------------------------------------------------------------------------

// Strides in elements, 0 for contiguous rows; `offset` elements of memory lie before the first.
struct Layout {
  int64_t row_stride = 0, column_stride = 1, offset = 0;
  Where where = Where::heap;
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound)); }
  double between(double low, double high) {
    return low + (high - low) * std::ldexp(static_cast<double>(engine_() >> 11), -53);
  }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, Layout layout = {})
      : dtype_(dtype),
        rows_(rows),
        columns_(columns),
        row_stride_(layout.row_stride ? layout.row_stride : columns),
        column_stride_(layout.column_stride),
        offset_(layout.offset) {
    const bool empty = rows == 0 || columns == 0;
    const int64_t elements = empty ? 0 : (rows - 1) * row_stride_ + (columns - 1) * column_stride_ + 1;
    memory_ = std::make_unique<Memory>(static_cast<size_t>((offset_ + elements) * element_bytes(dtype)), layout.where);
  }

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t row_stride() const { return row_stride_; }
  int64_t column_stride() const { return column_stride_; }
  void* data() const { return memory_->start() + offset_ * element_bytes(dtype_); }

  double get(int64_t i, int64_t j) const {
    const char* p = address(i, j);
    if (dtype_ == DType::f64) return read<double>(p);
    if (dtype_ == DType::f32) return read<float>(p);
    return value_of(read<uint16_t>(p), dtype_);
  }
  void set(int64_t i, int64_t j, double value) {
    char* p = address(i, j);
    if (dtype_ == DType::f64) {
      write<double>(p, value);
    } else if (dtype_ == DType::f32) {
      write<float>(p, static_cast<float>(value));
    } else {
      write<uint16_t>(p, bits_of(rounded(value, dtype_), dtype_));
    }
  }
  void set_bits(int64_t i, int64_t j, uint16_t bits) { write<uint16_t>(address(i, j), bits); }
  uint16_t get_bits(int64_t i, int64_t j) const { return read<uint16_t>(address(i, j)); }

  void fill(Random& random, double low, double high) {
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) set(i, j, random.between(low, high));
    }
  }
  // Every value, row after row.
  std::vector<double> values() const {
    std::vector<double> all;
    all.reserve(static_cast<size_t>(rows_ * columns_));
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) all.push_back(get(i, j));
    }
    return all;
  }
  // Whether nothing was written in the gaps between rows and before the first.
  bool gaps_untouched() const {
    std::vector<char> expected(memory_->bytes(), static_cast<char>(0xff));
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        std::memcpy(expected.data() + (address(i, j) - memory_->start()), address(i, j), size_of_element());
      }
    }
    return std::equal(expected.begin(), expected.end(), memory_->start());
  }
  // The same bits everywhere, gaps included. REQUIRES: the same layout.
  bool same_bits(const Matrix& other) const {
    return memory_->bytes() == other.memory_->bytes() &&
           std::memcmp(memory_->start(), other.memory_->start(), memory_->bytes()) == 0;
  }
  bool same_row_bits(int64_t i, const Matrix& other, int64_t other_i) const {
    return std::memcmp(address(i, 0), other.address(other_i, 0), static_cast<size_t>(columns_) * size_of_element()) ==
           0;
  }

 private:
  template <class T>
  static T read(const char* p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  }
  template <class T>
  static void write(char* p, T value) {
    std::memcpy(p, &value, sizeof(T));
  }
  size_t size_of_element() const { return static_cast<size_t>(element_bytes(dtype_)); }
  char* address(int64_t i, int64_t j) const {
    return memory_->start() + (offset_ + i * row_stride_ + j * column_stride_) * element_bytes(dtype_);
  }

  DType dtype_;
  int64_t rows_, columns_, row_stride_, column_stride_, offset_;
  std::unique_ptr<Memory> memory_;
};

inline Matrix random_matrix(DType dtype, int64_t rows, int64_t columns, Random& random, Layout layout = {}) {
  Matrix matrix(dtype, rows, columns, layout);
  matrix.fill(random, -2, 2);
  return matrix;
}

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
inline std::string name_of(Reduce reduce) {
  const char* names[] = {"sum", "mean", "min", "max"};
  return names[static_cast<int>(reduce)];
}
inline std::string name_of(DType dtype) {
  const char* names[] = {"f32", "f64", "bf16", "f16"};
  return names[static_cast<int>(dtype)];
}

}  // namespace frontgi::test
