#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Which of a weight's first two axes, [O, C, kh, kw], stands first when it is packed.
enum class PackedBy : uint8_t { kOut, kIn };

// packed [O, kh, kw, channels] or [C, kh, kw, channels] of weight [O, C, kh, kw], of its dtype: the
// other axis goes last, and is filled with zeros up to `channels`.
void pack_weights(const Exec& exec, const View& weight, PackedBy by, int64_t channels,
                  void* packed);

// dweight [O, C, kh, kw] = the sum of parts [splits, O, kh, kw, channels] in order, or += it,
// rounded once.
void add_weight_parts(const Exec& exec, const float* parts, int64_t splits, int64_t channels,
                      const View& dweight, bool accumulate);

}  // namespace shale::kernels::SHALE_BACKEND
