#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// The axis of a weight [O, C, kh, kw] that is first in packed weights.
enum class PackedBy : uint8_t { kOut, kIn };

// Packs weight [O, C, kh, kw] to [O, kh, kw, channels] or [C, kh, kw, channels], with the same
// dtype. The last axis is padded with zeros to `channels`.
void pack_weights(const Exec& exec, const View& weight, PackedBy by, int64_t channels,
                  void* packed);

// dweight [O, C, kh, kw] = the sum of parts [splits, O, kh, kw, channels] in order, or += it with
// accumulate, rounded once.
void add_weight_parts(const Exec& exec, const float* parts, int64_t splits, int64_t channels,
                      const View& dweight, bool accumulate);

}  // namespace shale::kernels::SHALE_BACKEND
