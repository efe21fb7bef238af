#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"

namespace shale {

// A dense tensor in host memory, row-major, under the name by which a loss asks for it.
struct HostTensor {
  std::string name;
  DType dtype = DType::kI32;
  Shape shape;
  std::vector<std::byte> bytes;

  // Its elements. Throws InternalError if they have another type.
  template <typename T>
  std::span<T> values() {
    check_dtype(dtype_of<T>);
    return {reinterpret_cast<T*>(bytes.data()), static_cast<size_t>(shape.numel())};
  }
  template <typename T>
  std::span<const T> values() const {
    return const_cast<HostTensor*>(this)->values<T>();
  }

 private:
  void check_dtype(DType wanted) const;
};

// A micro-batch in host memory: tensors of any types and shapes, whose first dimension counts
// samples.
struct Batch {
  int64_t first_position = 0;  // of its first sample among the samples of all ranks
  int64_t count = 0;           // rows that hold a sample; the rest is padding
  std::vector<HostTensor> fields{};

  // The field of that name, added if it is not there, with that type and shape. Its memory is used
  // again; what is in it is not defined. Throws ShapeError for sizes below 0 and for a product that
  // overflows.
  HostTensor& set(std::string_view name, DType dtype, const Shape& shape);
  // Throws InternalError, with the names that there are, for another.
  const HostTensor& field(std::string_view name) const;
};

// Makes batch `index` = 0, 1, 2, ... in memory that is used again. Returns false at the end. Worker
// threads of a Prefetcher call it at the same time, so it keeps no buffers from call to call.
using BatchSource = std::function<bool(int64_t index, Batch& batch)>;

}  // namespace shale
