#include "shale/runtime/optim/moments.h"

#include "shale/base/error.h"

namespace shale::optim {

DType moment_dtype(const char* optimizer, const char* rate_name, float rate, Moments moments) {
  if (moments == Moments::kF32) return DType::kF32;
  if (moments == Moments::kInt8) {
    throw ConfigError(cat(optimizer, ": 8-bit moments are not supported, expected fp32 or bf16"));
  }
  // Decay rates of a bf16 moment must be below this. bf16 has 8 significant bits, so rounding can undo a
  // relative change of up to 2^-8.
  constexpr float kLargestRate = 1 - 0x1p-8f;
  if (rate >= kLargestRate) {
    throw ConfigError(cat(optimizer, ": ", rate_name, " is ", rate, ", expected less than ",
                          kLargestRate, " with bf16 moments"));
  }
  return DType::kBF16;
}

}  // namespace shale::optim
