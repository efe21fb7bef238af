#pragma once

#include <cstdint>

#include "shale/base/view.h"

namespace shale::kernel_check {

// Fills a contiguous f32, bf16 or f16 view with numbers uniform in [-scale, scale], on all threads.
// The numbers depend only on view shape and seed.
void fill_uniform(const View& view, double scale, uint64_t seed);
// Fills a contiguous i32 view with integers uniform in [0, bound).
void fill_integers(const View& view, int64_t bound, uint64_t seed);

}  // namespace shale::kernel_check
