// For builds without a JSON library (SHALE_KERNELS_ONLY). Reading a configuration file throws an
// error.
#include "shale/base/config_internal.h"
#include "shale/base/error.h"

namespace shale {

void read_config_file(ConfigState& state, const std::string& path) {
  read_config_text(state, {}, path);
}

void read_config_text(ConfigState&, std::string_view, const std::string& source) {
  throw ConfigError(cat("--config: ", source, " cannot be read: this build has no JSON library ",
                        "(SHALE_KERNELS_ONLY); give the options as flags"));
}

}  // namespace shale
