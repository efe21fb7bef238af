#pragma once

#include <string>
#include <vector>

#include "shale/kernels/cost.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// A kernel call and its work.
struct KernelCall {
  const char* slot = nullptr;
  Cost cost{};
  DType dtype = DType::kF32;       // dtype of the operands of matmuls
  const GemmArgs* gemm = nullptr;  // set for a GEMM
  // Attention: number of (query, key) pairs over all heads, masked or not, and channels of a head.
  double scores = 0, head_size = 0;
};
// Describes a kernel call. `cost` is that of cost_of(), or zero for slots without a cost_of().
KernelCall described(const SlotCall& call);

// Returns the memory that a call writes, for kernels that work on parameters, gradients and
// optimizer states. Throws InternalError for other kernels.
std::vector<View> written_by(const SlotCall& call);

// Returns a text such as "NT 1024x3072x768": the layouts of a and b (T: transposed), and m x n x k.
// Forward GEMMs are NT, dX GEMMs NN, dW GEMMs TN.
std::string product_shape(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k);

// Returns product_shape() with the epilogue: "NT 1024x3072x768 bias gelu".
std::string gemm_name(const GemmArgs& args);

// Returns the operations of a GEMM's epilogue: " bias gelu", or an empty text.
std::string epilogue_name(const GemmArgs& args);

}  // namespace shale::kernels
