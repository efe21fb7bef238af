#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

struct GemmPlan;

// What happens to a product on its way to memory, while it is still in registers or cache.
// Tanh and erf name the two forms of GELU (arXiv:1606.08415, section 2); SwiGLU is equation 6 of
// arXiv:2002.05202, whose Swish1 is silu(x) = x / (1 + e^-x). SwiGLU's branches are called gate and
// up: a, b, c and aux are the gate's.
enum class Epilogue : uint8_t {
  kNone,
  kGeluTanh,  // aux = a·b + bias; c = gelu(aux)
  kGeluErf,
  kDGeluTanh,  // c = (a·b) * gelu'(aux)
  kDGeluErf,
  kSwiGlu,   // aux = a·b, aux_up = a·b_up; c = silu(aux) * aux_up
  kDSwiGlu,  // of the product d: c = d * aux_up * silu'(aux), c_up = d * silu(aux)
};

// c = epilogue(a·b + bias) + residual, or c += a·b with `accumulate`; rounded once, accumulated or
// not.
// One of a's two strides is 1, one of b's too (a transposed operand is a view with its strides
// swapped); c, aux and residual are row-major with any row stride.
// dtypes: a and b alike, f32 or bf16 (f16); c like a or f32. Products are accumulated in f32.
// The bits of c do not depend on the number of threads.
//
// With kSwiGlu both products are of one pass over a, which is row-major; b and b_up are the
// transposes of row-major weights [N, K], as checkpoints have them. kSwiGlu and kDSwiGlu go with
// neither bias, residual nor accumulate.
struct GemmArgs {
  View a;                   // [M, K]
  View b;                   // [K, N]
  View c;                   // [M, N]
  bool accumulate = false;  // without epilogue and residual only
  View bias{};              // [N], like a; optional
  Epilogue epilogue = Epilogue::kNone;
  View aux{};        // [M, N], like a: the pre-activation, written forward, read by kD*
  View residual{};   // [M, N], like c: added last; optional
  View bias_grad{};  // [N] f32 or bf16: column sums of the final c, with kDGelu* only; optional
  bool accumulate_bias_grad = false;
  View b_up{};    // [K, N], like b: with kSwiGlu only
  View aux_up{};  // like aux: with kSwiGlu, kDSwiGlu
  View c_up{};    // [M, N], like c: with kDSwiGlu only
  // GPUs: how to go about it, instead of what gemm_plan() says; for tests and the tuner. Lives
  // until the call returns.
  const GemmPlan* plan = nullptr;
};

// gemm_problem() has the checks: every device's kernel begins with it.
inline void check_args(const GemmArgs&) {}

inline Slot<GemmArgs> gemm{"gemm"};

}  // namespace shale::kernels
