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

// A dense, row-major tensor in host memory. Losses find it by its name.
struct HostTensor {
  std::string name;
  DType dtype = DType::kI32;
  Shape shape;
  std::vector<std::byte> bytes;

  // Returns the elements. Throws InternalError if T is not the type of `dtype`.
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

// A micro-batch in host memory. Its fields are tensors of any dtype and shape; their first
// dimension is the sample.
struct Batch {
  int64_t first_position = 0;  // index of the batch's first sample among the samples of all ranks
  int64_t count = 0;           // number of rows that hold a sample; the rows after them are padding
  std::vector<HostTensor> fields{};

  // Returns the field of this name, with this dtype and shape. Adds it if it does not exist. Its
  // memory is reused, so its contents are undefined. Throws ShapeError for negative sizes and if
  // their product overflows.
  HostTensor& set(std::string_view name, DType dtype, const Shape& shape);
  // Throws InternalError if there is no such field. The message lists the existing names.
  const HostTensor& field(std::string_view name) const;
};

// Writes batch number `index` = 0, 1, 2, ... into `batch`, which is reused. Returns false at the
// end. Several threads of a Prefetcher call it concurrently, so it must not keep buffers between
// calls.
using BatchSource = std::function<bool(int64_t index, Batch& batch)>;

}  // namespace shale
