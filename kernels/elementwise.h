#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y = alpha * a + beta * b, elementwise; y may be a or b. Contiguous views of the same size; each
// of a, b and y may be f32, bf16 or f16. Computed in f32, rounded once.
struct AxpbyArgs {
  View a;
  View b{};  // optional; without it y = alpha * a, which also casts dtypes
  View y;
  float alpha = 1;
  float beta = 1;
};

// y = a * b; b has the size of a, or one element. Dtypes as in AxpbyArgs.
struct MulArgs {
  View a, b, y;
};

struct FillArgs {
  View y;  // any dtype, contiguous
  double value = 0;
};

// Copies between views of the same shape, with any strides. Contiguous views may have different
// dtypes. Conversion to a float rounds to nearest; to f16 and bf16, the value is rounded to f32
// first. Conversion from a float to an integer rounds towards zero and limits the value to the
// integer's range (kernels/convert.h). Conversion between integers wraps around.
struct CopyArgs {
  View x;
  View y;
};

// GELU (arXiv:1606.08415). With exact, 0.5 x (1 + erf(x / sqrt 2)); else the tanh approximation.
struct GeluFwdArgs {
  View x, y;
  bool exact = false;
};
struct GeluBwdArgs {
  View x, dy, dx;
  bool exact = false;
};

// y = silu(gate) * up, bitwise equal to kSwiGlu of the gemm slot. All views have one dtype.
struct SwiGluFwdArgs {
  View gate, up, y;
};

// y = x * keep / (1 - p) (+ residual), where keep is 0 or 1 for each element. The factor is the f32
// value 1 / (1 - p). The result of a dropped element does not depend on x, so a dropped NaN gives
// 0.
//
// keep is a function of (seed, step, site, global sample, element of the sample). So it does not
// depend on ranks or micro-batches, and backward computes it again. Philox has the key
// rng_key(seed, kDropout) and the counter (element / 4, site, sample, step), with the low 32 bits
// of step and sample. An element is kept when uniform_f32(word element % 4) >= p.
struct DropoutArgs {
  View x;           // [samples, ...] contiguous
  View residual{};  // like x; optional
  View y;           // like x; may be x
  float p = 0;
  uint32_t site = 0;
  // If sample_elements is 0, x has whole samples, and its first dimension counts them. Otherwise a
  // sample has sample_elements elements, and x has the elements [first, first + numel) of all
  // samples together. first and sample_elements are multiples of four.
  int64_t first = 0;
  int64_t sample_elements = 0;
};

void check_args(const AxpbyArgs& a);
void check_args(const MulArgs& a);
void check_args(const FillArgs& a);
void check_args(const CopyArgs& a);
void check_args(const GeluFwdArgs& a);
void check_args(const GeluBwdArgs& a);
void check_args(const SwiGluFwdArgs& a);
void check_args(const DropoutArgs& a);

inline Slot<AxpbyArgs> axpby{"axpby"};
inline Slot<MulArgs> mul{"mul"};
inline Slot<FillArgs> fill{"fill"};
inline Slot<CopyArgs> copy{"copy"};
inline Slot<GeluFwdArgs> gelu_fwd{"gelu_fwd"};
inline Slot<GeluBwdArgs> gelu_bwd{"gelu_bwd"};
inline Slot<SwiGluFwdArgs> swiglu_fwd{"swiglu_fwd"};
inline Slot<DropoutArgs> dropout{"dropout"};

}  // namespace shale::kernels
