#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Runs a chain of elementwise ops as one kernel, which reads each input once and writes each result
// once:
//
//   Tensor y = fused([&](const Tensor& in) { return mul(in, sigmoid(add(in, bias))); }, x);
//
// fn may use what is in ops/pointwise.h, and add, mul, scale and cast of ops/elementwise.h; tensors
// that it captures are inputs like others. All results of its ops have one shape, to which inputs
// are broadcast; what has another shape is computed before. Each op rounds to its dtype, so results
// have the bits of the ops one by one. Backward is one kernel too: it keeps the inputs alone, and
// computes the rest again. Gradients round between ops as without fused(); those of an input that
// is used several times and is broadcast, or is a leaf of 16 bits, may differ by roundings.
//
// On the CPU and the emulator an interpreter goes through the chain tile by tile. On a GPU the
// chain is compiled when it is first run, by NVIDIA's NVRTC, which is loaded then: UnavailableError
// where there is none. The environment's SHALE_NVRTC names its file, or is "off": then the GPU
// interprets.
//
// Throws ShapeError for a chain that is too long (kernels/pointwise.h has the limits),
// AutogradError for results that are not of elementwise ops.
using FusedFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> fused(const FusedFn& fn, const std::vector<Tensor>& inputs);
Tensor fused(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace shale
