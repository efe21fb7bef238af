#pragma once

#include <string>
#include <vector>

#include "shale/kernels/cost.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// A call of a kernel, and the work that it is for.
struct KernelCall {
  const char* slot = nullptr;
  Cost cost{};
  DType dtype = DType::kF32;       // of the operands of what has FLOP
  const GemmArgs* gemm = nullptr;  // of a matrix product
  // Of attention: pairs of a query and a key, of all heads, seen or not, and a head's channels.
  double scores = 0, head_size = 0;
};
// The work is that of cost_of(); of a slot that has none it counts as nothing.
KernelCall described(const SlotCall& call);

// The memory that a call writes, of the kernels that work on parameters, gradients and optimizer
// states. Throws InternalError for another kernel.
std::vector<View> written_by(const SlotCall& call);

// "NT 1024x3072x768": how a and b are stored (T: transposed), and m x n x k. Forward products are
// NT, those of dX NN, those of dW TN.
std::string product_shape(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k);

// "NT 1024x3072x768 bias gelu": with what the epilogue does.
std::string gemm_name(const GemmArgs& args);

// Names what happens in a product's epilogue: " bias gelu", or nothing.
std::string epilogue_name(const GemmArgs& args);

}  // namespace shale::kernels
