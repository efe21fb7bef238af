#include "shale/runtime/nn/state_part.h"

namespace shale {

Shape state_shape(const Shape& parameter, int64_t block) {
  if (block == 1) return parameter;
  if (parameter.ndim() == 0 || parameter.at(-1) % block != 0) {
    return {(parameter.numel() + block - 1) / block};
  }
  Shape shape = parameter;
  shape[shape.ndim() - 1] /= block;
  return shape;
}

}  // namespace shale
