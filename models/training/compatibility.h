#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/base/error.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Why two options do not work together.
enum class Why : uint8_t {
  kMathematics,  // what one asks for contradicts the other
  kNotBuilt,     // nobody has written it
};

// An option with some of its values.
template <typename Config>
struct OptionUse {
  const char* name;  // for pages: "--zero 2, 3"
  // As the config has it, "--zero 2"; empty: it does not use the option so.
  std::string (*in)(const Config& config);
};

// Two options that do not work together. Tables of these are what checks, their messages and
// docs/compatibility.md are made of; an option that needs another is in ConfigSpec::needs().
template <typename Config>
struct Incompatible {
  OptionUse<Config> a, b;
  Why why;
  const char* reason;   // a clause
  const char* instead;  // what to use
};

// Throws ConfigError for the first pair that a config uses.
template <typename Config>
void check_compatible(std::span<const Incompatible<Config>> table, const Config& config) {
  for (const Incompatible<Config>& pair : table) {
    const std::string a = pair.a.in(config), b = pair.b.in(config);
    if (a.empty() || b.empty()) continue;
    throw ConfigError(
        cat(a, " is incompatible with ", b, ": ", pair.reason, "; use ", pair.instead));
  }
}

// Of all training programs.
std::span<const Incompatible<RunConfig>> incompatible_run_options();

// "--flag value", or empty unless `uses`.
template <typename Value>
std::string option_text(bool uses, std::string_view flag, const Value& value) {
  return uses ? cat(flag, " ", value) : std::string();
}
inline std::string option_text(bool uses, std::string_view flag) {
  return uses ? std::string(flag) : std::string();
}

}  // namespace shale::models
