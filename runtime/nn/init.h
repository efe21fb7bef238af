#pragma once

#include <cstdint>
#include <string_view>

#include "shale/base/view.h"

namespace shale {

// How a parameter starts: constant, or normal with Philox keyed by (seed, name, element), so that
// any range can be filled alone and the values do not depend on the number of ranks.
struct Init {
  float mean = 0;
  float std = 0;  // 0: the constant `mean`

  static Init zeros() { return {}; }
  static Init ones() { return {.mean = 1}; }
  static Init normal(float std) { return {.mean = 0, .std = std}; }
};

}  // namespace shale
