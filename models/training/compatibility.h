#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shale/base/error.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Reason for which two options are incompatible.
enum class Why : uint8_t {
  kMathematics,  // the two options contradict each other
  kNotBuilt,     // not implemented
};

// An option with some of its values.
template <typename Config>
struct OptionUse {
  const char* name;  // text for pages, such as "--zero 2, 3"
  std::string (*text)(const Config& config, const char* name);
  // Returns the option with its value in `config`, such as "--zero 2". Empty: `config` does not use
  // these values.
  std::string in(const Config& config) const { return text(config, name); }
};

// Two incompatible options. Tables of this struct define the checks, their messages and
// docs/reference/compatibility.md. ConfigSpec::needs() declares options that require another one.
template <typename Config>
struct Incompatible {
  OptionUse<Config> a, b;
  Why why;
  const char* reason;   // why the options are incompatible, as a clause
  const char* instead;  // what to use instead
};

// Throws ConfigError for the first incompatible pair that a config uses.
template <typename Config>
void check_compatible(std::span<const Incompatible<Config>> table, const Config& config) {
  for (const Incompatible<Config>& pair : table) {
    const std::string a = pair.a.in(config), b = pair.b.in(config);
    if (a.empty() || b.empty()) continue;
    throw ConfigError(
        cat(a, " is incompatible with ", b, ": ", pair.reason, "; use ", pair.instead));
  }
}

// Returns the pairs of options that are incompatible in all training programs.
std::span<const Incompatible<RunConfig>> incompatible_run_options();

// Returns "--flag value" if `uses` is true, otherwise an empty string.
template <typename Value>
std::string option_text(bool uses, std::string_view flag, const Value& value) {
  return uses ? cat(flag, " ", value) : std::string();
}
inline std::string option_text(bool uses, std::string_view flag) {
  return uses ? std::string(flag) : std::string();
}
template <typename Config, typename Field>
Config config_of(Field Config::*);

// Functions for OptionUse::text. They return the option if its field is above kMost, set, or not
// empty.
template <auto kField, int kMost>
std::string above(const decltype(config_of(kField))& config, const char* flag) {
  return option_text(config.*kField > kMost, flag, config.*kField);
}
template <auto kField>
std::string is_set(const decltype(config_of(kField))& config, const char* flag) {
  return option_text(config.*kField, flag);
}
template <auto kField>
std::string is_given(const decltype(config_of(kField))& config, const char* flag) {
  return option_text(!(config.*kField).empty(), flag, config.*kField);
}

}  // namespace shale::models
