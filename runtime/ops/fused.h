#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Runs a chain of elementwise ops as one kernel, which reads each input once and writes each result
// once:
//
// Tensor y = fused([&](const Tensor& in) { return mul(in, sigmoid(add(in, bias))); }, x);
//
// fn may use the ops in ops/pointwise.h, and add, mul, scale and cast of ops/elementwise.h. Tensors
// that it captures are further inputs. All results of its ops must have one shape, to which inputs
// are broadcast; compute other shapes before the call. Each op rounds to its dtype, so results are
// bitwise equal to those of separate ops. Backward is one kernel, too. It keeps only the inputs and
// recomputes intermediate results. Gradients round between ops as they do without fused(). One
// exception: if an input is used several times, and is broadcast or a 16-bit leaf, its gradient may
// differ by rounding.
//
// On the CPU and the emulator an interpreter runs the chain tile by tile. On a GPU, NVIDIA's NVRTC
// compiles the chain on its first run. NVRTC is loaded at that time; if it is missing,
// UnavailableError is thrown. The environment variable SHALE_NVRTC names its file. If it is "off",
// the GPU uses an interpreter.
//
// Throws ShapeError for a chain that is too long (kernels/pointwise.h has the limits),
// AutogradError for results that do not come from elementwise ops.
using FusedFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> fused(const FusedFn& fn, const std::vector<Tensor>& inputs);
Tensor fused(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace shale
