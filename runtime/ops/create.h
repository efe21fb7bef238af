#pragma once

#include <cstdint>
#include <optional>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Ops that create tensors on the device. empty(), full() and zeros() are in tensor.h. dtype may be
// any dtype; for random numbers f32, bf16 or f16.

// Random numbers: normal with mean 0 and variance 1; uniform in [low, high). With `seed` they
// depend only on the seed and the element's index. Without it they depend on ContextOptions::seed,
// the optimizer step and the number of random tensors made in this step, so that a resumed run and
// a recomputed segment make the same numbers. Ranks that need different numbers must have different
// seeds. The bits are the same on every device.
Tensor randn(Context& context, const Shape& shape, DType dtype = DType::kF32,
             std::optional<uint64_t> seed = {});
Tensor uniform(Context& context, const Shape& shape, float low = 0, float high = 1,
               DType dtype = DType::kF32, std::optional<uint64_t> seed = {});

// Returns begin, begin + step, begin + 2 step, ..., without end. Throws ShapeError if step is 0 or
// leads away from end.
Tensor arange(Context& context, double begin, double end, double step = 1,
              DType dtype = DType::kI32);
// Returns `count` equally spaced numbers from first to last, both included. count: 1 or more.
Tensor linspace(Context& context, double first, double last, int64_t count,
                DType dtype = DType::kF32);

}  // namespace shale
