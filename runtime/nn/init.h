#pragma once

#include <cstdint>
#include <string_view>

#include "shale/base/view.h"

namespace shale {

// Initial value of a parameter: constant, or normal from Philox keyed by (seed, name, element). Any
// range can thus be filled by itself, and values do not depend on the number of ranks.
struct Init {
  float mean = 0;
  float std = 0;  // 0: the constant `mean`

  static Init zeros() { return {}; }
  static Init ones() { return {.mean = 1}; }
  static Init normal(float std) { return {.mean = 0, .std = std}; }
};

}  // namespace shale
