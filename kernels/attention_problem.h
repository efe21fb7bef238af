#pragma once

#include <algorithm>
#include <cstdint>

#include "shale/kernels/attention.h"

// Attention's arguments, checked: what its implementations start from.
namespace shale::kernels {

inline constexpr int64_t kMaxHeadSize = 256;

// A [B, T, heads, D] view with stride 1 along D; other strides in elements.
struct HeadView {
  void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  template <typename T>
  T* row(int64_t batch, int64_t row_index, int64_t head) const {
    return static_cast<T*>(data) + batch * batch_stride + row_index * row_stride +
           head * head_stride;
  }
};

struct AttentionProblem {
  DType dtype = DType::kF32;
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_size = 0;
  float scale = 0;
  bool causal = false;
  AttentionTile tile = AttentionTile::kOfHeadSize;  // of forward
  HeadView q, k, v, out;
  HeadView dout, dq, dk, dv;  // of backward
  float* lse = nullptr;
  int64_t lse_batch_stride = 0, lse_head_stride = 0, lse_row_stride = 0;
  const int32_t* q_lengths = nullptr;  // of each sequence, in device memory; null: `queries`
  const int32_t* k_lengths = nullptr;  // null: `keys`
};

// Throw ShapeError and DTypeError.
AttentionProblem attention_problem(const char* op, const AttentionFwdArgs& args);
AttentionProblem attention_problem(const char* op, const AttentionBwdArgs& args);

}  // namespace shale::kernels
