#pragma once

#include <cstdint>
#include <string_view>

#include "shale/base/view.h"

namespace shale {

// Initial value of a parameter: a constant, or normal random numbers from Philox. A number depends
// only on the seed, the parameter's name and the element's index. So any range can be filled
// without the rest, and values do not depend on the number of ranks.
struct Init {
  float mean = 0;
  float std = 0;  // standard deviation; 0: the constant `mean`

  static Init zeros() { return {}; }
  static Init ones() { return {.mean = 1}; }
  static Init normal(float std) { return {.mean = 0, .std = std}; }
};

}  // namespace shale
