#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

struct GemmPlan;

// Operation on a GEMM's result while it is still in registers or cache. Tanh and Erf are the two
// forms of GELU (arXiv:1606.08415, section 2); SwiGLU is equation 6 of arXiv:2002.05202, whose
// Swish1 is silu(x) = x / (1 + e^-x). SwiGLU's branches are called gate and up: a, b, c and aux
// belong to the gate.
enum class Epilogue : uint8_t {
  kNone,
  kGeluTanh,  // aux = a·b + bias; c = gelu(aux)
  kGeluErf,
  kDGeluTanh,  // c = (a·b) * gelu'(aux)
  kDGeluErf,
  kSwiGlu,   // aux = a·b, aux_up = a·b_up; c = silu(aux) * aux_up
  kDSwiGlu,  // d = a·b: c = d * aux_up * silu'(aux), c_up = d * silu(aux)
};

// c = epilogue(a·b + bias) + residual, or c += a·b with `accumulate`; both are rounded once.
// One of a's two strides must be 1, and one of b's (a transposed operand is a view with its strides
// swapped); c, aux and residual are row-major with any row stride.
// dtypes: a and b are both f32, bf16 or f16; c is like a, or f32. Products are accumulated in f32.
// The bits of c do not depend on the number of threads.
//
// kSwiGlu computes both GEMMs in one pass over a, which must be row-major; b and b_up are the
// transposes of row-major weights [N, K], as in checkpoints. kSwiGlu and kDSwiGlu are incompatible
// with bias, residual and accumulate.
struct GemmArgs {
  View a;                   // [M, K]
  View b;                   // [K, N]
  View c;                   // [M, N]
  bool accumulate = false;  // allowed only without epilogue and residual
  View bias{};              // [N], like a; optional
  Epilogue epilogue = Epilogue::kNone;
  View aux{};        // [M, N], like a: pre-activation; output in forward, input of kD*
  View residual{};   // [M, N], like c: added last; optional
  View bias_grad{};  // [N] f32 or bf16: column sums of the final c; kDGelu* only; optional
  bool accumulate_bias_grad = false;
  View b_up{};    // [K, N], like b: kSwiGlu only
  View aux_up{};  // like aux: kSwiGlu and kDSwiGlu only
  View c_up{};    // [M, N], like c: kDSwiGlu only
  // GPUs: plan to use instead of gemm_plan()'s; for tests and the tuner. Must be valid until the
  // call returns.
  const GemmPlan* plan = nullptr;
};

// gemm_problem(), which the kernels of every device call first, does the checks.
inline void check_args(const GemmArgs&) {}

inline Slot<GemmArgs> gemm{"gemm"};

}  // namespace shale::kernels
