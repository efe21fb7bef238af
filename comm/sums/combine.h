#pragma once

#include <cstdint>
#include <span>

#include "shale/base/exec.h"
#include "shale/comm/collective.h"

namespace shale::comm {

// Arithmetic of reductions: outputs[k][i] = inputs[0][i] op inputs[1][i] op ..., for all k.
struct CombineArgs {
  CollectiveOp op = CollectiveOp::kAllReduceSum;  // kAllReduceMax: maximum; others: tree sum
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  int64_t count = 0;
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;  // may differ from in_dtype only for sums of f32, bf16 and f16
  bool stream = false;            // bypass the caches
};
void combine(const Exec& exec, const CombineArgs& args);

// Copies to one or more destinations, bypassing the caches if `stream`.
void copy_to(const Exec& exec, const void* from, std::span<void* const> to, int64_t bytes,
             bool stream);

// Returns the address of an element of a contiguous view.
inline std::byte* at(const View& view, int64_t element) {
  return static_cast<std::byte*>(view.data) + element * dtype_size(view.dtype);
}

// Range of part i if `count` elements are divided into `parts` parts. Parts begin at multiples of a
// cache line, and may be empty.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};
Range part_of(int64_t count, int parts, int i, DType dtype);

}  // namespace shale::comm
