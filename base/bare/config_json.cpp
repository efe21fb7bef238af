// Configuration files in builds without a JSON library (SHALE_KERNELS_ONLY): there are none.
#include <cstdio>

#include "shale/base/config_internal.h"
#include "shale/base/error.h"

namespace shale {

std::string json_quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", unsigned(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

void read_config_file(ConfigState& state, const std::string& path) {
  read_config_text(state, {}, path);
}

void read_config_text(ConfigState&, std::string_view, const std::string& source) {
  throw ConfigError(cat("--config: ", source, " cannot be read: this build, which has the kernels ",
                        "alone, has no JSON library"));
}

}  // namespace shale
