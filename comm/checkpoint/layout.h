#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/runtime/nn/sharding.h"

namespace shale {

// How a checkpoint's tensors are divided among the files of the ranks.
//
// A *global tensor* has a name, an element type and the shape of the unsharded model. It is divided
// into *boxes* that form a grid. With tensor parallelism each rank has a box; without it the only
// box is the whole tensor. A box is divided into *parts*, as data parallelism makes them: ranges of
// its elements in row-major order. Each part is in one file.

// Elements [first, first + count) of a box of a tensor.
struct TensorPart {
  std::string tensor;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // shape of the whole tensor
  TensorBox box = {};          // without dimensions: the whole tensor
  int64_t first = 0;
  int64_t count = 0;

  int64_t bytes() const { return count * dtype_size(dtype); }
};

// Name and shape of a part in its file. If the part is the whole tensor, they are the tensor's own.
// Otherwise the shape is [count] and the name contains the position: "wte.weight@1024", or
// "wte.weight@0.256+1024" in a box that begins at [0, 256].
std::string stored_name(const TensorPart& part);
std::vector<int64_t> stored_shape(const TensorPart& part);

// A global tensor and the location of its parts.
struct CheckpointTensor {
  struct Part {
    int64_t file = 0;  // index in CheckpointManifest::files
    int64_t first = 0;
    int64_t count = 0;
  };
  struct Box {
    TensorBox box;
    std::vector<Part> parts;  // sorted by `first`
  };

  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<Box> boxes;  // sorted by `begin`

  int64_t numel() const;
  int64_t bytes() const { return numel() * dtype_size(dtype); }
};

TensorPart part_of(std::string_view name, const CheckpointTensor& tensor,
                   const CheckpointTensor::Box& box, const CheckpointTensor::Part& part);

TensorBox whole_box(const std::vector<int64_t>& shape);

// Throws DataError, starting with `source` and the tensor's name, if the tensor is invalid. A valid
// tensor has at most 8 dimensions and fewer than 2^63 bits. Its boxes form a grid that fills the
// shape. Its parts fill each box in order without gap or overlap. All file indices are below
// `file_count`. A tensor without elements has one box and no parts.
void check_tensor(std::string_view source, std::string_view name, const CheckpointTensor& tensor,
                  int64_t file_count);

// Elements that are contiguous both in a tensor and in a part of it.
struct TensorRun {
  int64_t in_tensor = 0;  // first element's index in the tensor, in row-major order
  int64_t in_part = 0;    // first element's index in the part
  int64_t count = 0;
};

// Finds the elements of `part` that are among elements [first, first + count) of its tensor. Calls
// `visit` for each contiguous run of them, in ascending order.
void for_each_run(const TensorPart& part, int64_t first, int64_t count,
                  const std::function<void(const TensorRun&)>& visit);

}  // namespace shale
