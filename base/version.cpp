#include "shale/base/version.h"

namespace shale {

std::string_view shale_version() {
  return SHALE_VERSION;
}

}  // namespace shale
