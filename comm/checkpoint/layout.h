#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/runtime/nn/sharding.h"

namespace shale {

// How the tensors of a checkpoint are cut into pieces that different ranks write.
//
// A *global tensor* has a name, an element type and the shape it has in a model that nobody
// sharded. It is cut into *boxes* that form a grid: tensor parallelism gives each rank a box,
// without it the only box is the whole tensor. A box is cut into *parts*: ranges of its elements in
// row-major order, which is what data parallelism makes. Each part lies in one file.

// Elements [first, first + count) of a box of a tensor.
struct TensorPart {
  std::string tensor;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // of the whole tensor
  TensorBox box = {};          // without dimensions: the whole tensor
  int64_t first = 0;
  int64_t count = 0;

  int64_t bytes() const { return count * dtype_size(dtype); }
};

// The name and shape that a part has in its file: the tensor's own if it is all of it, else a name
// that no other part of the tensor has ("wte.weight@1024", or with a box "wte.weight@0.256+1024"),
// and [count].
std::string stored_name(const TensorPart& part);
std::vector<int64_t> stored_shape(const TensorPart& part);

// A global tensor and where it lies.
struct CheckpointTensor {
  struct Part {
    int64_t file = 0;  // index of the file in the manifest
    int64_t first = 0;
    int64_t count = 0;
  };
  struct Box {
    TensorBox box;
    std::vector<Part> parts;  // by `first`
  };

  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<Box> boxes;  // by `begin`

  int64_t numel() const;
  int64_t bytes() const { return numel() * dtype_size(dtype); }
};

TensorPart part_of(std::string_view name, const CheckpointTensor& tensor,
                   const CheckpointTensor::Box& box, const CheckpointTensor::Part& part);

TensorBox whole_box(const std::vector<int64_t>& shape);

// Throws DataError, starting with `source` and the tensor's name, unless the shape is one that a
// tensor can have (at most 8 dimensions, fewer than 2^63 bits), the boxes are a grid that fills it,
// the parts fill each box, all without gap or overlap and in order, and all files are below
// `file_count`. A tensor without elements has one box and no parts.
void check_tensor(std::string_view source, std::string_view name, const CheckpointTensor& tensor,
                  int64_t file_count);

// A stretch of elements that lie one after another both in a tensor and in a part of it.
struct TensorRun {
  int64_t in_tensor = 0;  // of the first one, among all elements of the tensor in row-major order
  int64_t in_part = 0;    // of the first one, counted from the part's first
  int64_t count = 0;
};

// Calls `visit` for what `part` has of elements [first, first + count) of its tensor, in order.
void for_each_run(const TensorPart& part, int64_t first, int64_t count,
                  const std::function<void(const TensorRun&)>& visit);

}  // namespace shale
