#include "shale/models/tools/config_import.h"

#include <algorithm>
#include <cmath>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

void flatten(const Json& value, const std::string& prefix, std::map<std::string, Json>& out) {
  for (const auto& [key, inner] : value.items()) {
    const std::string name = prefix.empty() ? key : cat(prefix, ".", key);
    if (inner.is_object()) {
      flatten(inner, name, out);
    } else {
      out.emplace(name, inner);
    }
  }
}

// Converts a text such as "1e-4", which is not a number in YAML 1.1, to a number. Returns other
// values unchanged.
Json as_number(const Json& value) {
  if (!value.is_string()) return value;
  if (const auto integer = parse_int(value.text())) return *integer;
  if (const auto real = parse_real(value.text())) return *real;
  return value;
}

// Returns "--micro-batch" for "micro_batch".
std::string flag_of(std::string option) {
  std::replace(option.begin(), option.end(), '_', '-');
  return "--" + option;
}

}  // namespace

std::string keys_of(const std::map<std::string, std::string>& names) {
  std::string all;
  for (const auto& [name, ours] : names) all += cat(all.empty() ? "" : ", ", name);
  return all;
}

ConfigImport::ConfigImport(const Json& theirs, int64_t ranks, std::set<std::string> waived)
    : ranks_(ranks), waived_(std::move(waived)) {
  flatten(theirs, "", values_);
}

bool ConfigImport::is(const std::string& key, const Json& value) const {
  const auto it = values_.find(key);
  return it != values_.end() && it->second == value;
}

std::optional<Json> ConfigImport::take(const std::string& key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return std::nullopt;
  taken_.insert(key);
  if (it->second.is_null()) return std::nullopt;
  if (it->second == "auto") {
    notes_.push_back(cat(key, ": left out; the command that starts the run sets \"auto\" values"));
    return std::nullopt;
  }
  return it->second;
}

void ConfigImport::mistyped(const std::string& key, std::string_view want,
                            const Json& found) const {
  throw DataError(cat(key, ": expected ", want, ", found ", excerpt(found.dump())));
}

std::optional<Json> ConfigImport::numeric(const std::string& key) {
  const auto value = take(key);
  if (!value) return std::nullopt;
  const Json number = as_number(*value);
  if (!number.is_number()) mistyped(key, "a number", *value);
  const double real = number.real();
  // Numbers such as 1e3 and 3.0 are integers too.
  const bool is_integral = real == std::floor(real) && std::abs(real) < 1e15;
  return is_integral ? Json(static_cast<int64_t>(real)) : number;
}

std::optional<double> ConfigImport::number(const std::string& key) {
  const auto value = numeric(key);
  return value ? std::optional(value->real()) : std::nullopt;
}

std::optional<std::vector<double>> ConfigImport::numbers(const std::string& key) {
  const auto value = take(key);
  if (!value) return std::nullopt;
  if (!value->is_array()) mistyped(key, "a list of numbers", *value);
  std::vector<double> all;
  for (const Json& item : *value) {
    const Json number = as_number(item);
    if (!number.is_number()) mistyped(key, "a list of numbers", *value);
    all.push_back(number.real());
  }
  return all;
}

std::optional<int64_t> ConfigImport::integer(const std::string& key) {
  const auto value = number(key);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value) || std::abs(*value) > 1e15) {
    mistyped(key, "an integer", values_.at(key));
  }
  return static_cast<int64_t>(*value);
}

std::optional<bool> ConfigImport::flag(const std::string& key) {
  const auto value = take(key);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) mistyped(key, "true or false", *value);
  return value->get<bool>();
}

std::optional<std::string> ConfigImport::text(const std::string& key) {
  const auto value = take(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) mistyped(key, "a string", *value);
  return value->get<std::string>();
}

void ConfigImport::set(const std::string& option, const Json& value, std::string_view key) {
  if (options_.contains(option) && options_[option] != value) {
    problems_.push_back(cat(key, ": ", flag_of(option), " would be ", value.dump(),
                            ", but is already ", options_[option].dump()));
    return;
  }
  options_[option] = value;
  notes_.push_back(
      cat(key, ": ", flag_of(option), value == true ? std::string() : " " + value.dump()));
}

void ConfigImport::maps(const std::string& key, const std::string& option) {
  if (const auto value = numeric(key)) set(option, *value, key);
}

void ConfigImport::maps(const std::string& key, const std::string& option, const Json& fallback) {
  const auto theirs = values_.find(key);
  const bool is_given = theirs != values_.end() && !theirs->second.is_null();
  if (const auto value = numeric(key)) {
    set(option, *value, key);
  } else if (!is_given) {
    set(option, fallback, cat(key, " (not given)"));
  }
}

void ConfigImport::maps_text(const std::string& key, const std::string& option) {
  if (const auto value = text(key)) set(option, *value, key);
}

void ConfigImport::leave_out(const std::vector<std::string>& keys, std::string_view why) {
  for (const std::string& key : keys) {
    if (has(key) && taken_.insert(key).second) notes_.push_back(cat(key, ": left out; ", why));
  }
}

void ConfigImport::leave_out_rest(std::string_view prefix, std::string_view why) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) {
    if (key.starts_with(prefix)) keys.push_back(key);
  }
  leave_out(keys, why);
}

void ConfigImport::refuse(const std::string& key, std::string_view why) {
  const auto it = values_.find(key);
  if (it == values_.end()) return;
  taken_.insert(key);
  const std::string what = cat(key, " ", it->second.dump(), ": ", why);
  if (waived_.count(key) > 0) {
    notes_.push_back(cat(what, "; waived"));
  } else {
    problems_.push_back(what);
  }
}

void ConfigImport::lacks(const std::string& key, std::string_view why) {
  problems_.push_back(cat(key, " (not given): ", why));
}

void ConfigImport::refuse_unless(const std::string& key, const Json& harmless,
                                 std::string_view why) {
  for (auto it = values_.lower_bound(key + "."); it != values_.end(); ++it) {
    if (!it->first.starts_with(key + ".")) break;
    if (!it->second.is_null()) refuse(it->first, why);
  }
  const auto value = take(key);  // empty for "auto": transformers then uses `harmless`
  if (!value || *value == harmless || as_number(*value) == harmless) return;
  refuse(key, why);
}

void ConfigImport::set_global_batch(int64_t micro_batch, int64_t accumulated,
                                    std::string_view key) {
  if (ranks_ > 0) return set("global_batch", micro_batch * accumulated * ranks_, key);
  if (accumulated == 1) return;  // the default of --global-batch is then right
  problems_.push_back(
      cat(key, " ", accumulated, ": --global-batch depends on the number of ranks; give --ranks"));
}

void ConfigImport::finish() {
  for (const auto& [key, value] : values_) {
    if (taken_.count(key) > 0) continue;
    if (value.is_null()) {
      notes_.push_back(cat(key, ": left out; its value is null"));
    } else {
      refuse(key, "has no counterpart");
    }
  }
  for (const std::string& key : waived_) {
    if (!has(key)) problems_.push_back(cat("--waive ", key, ": there is no such key"));
  }
}

}  // namespace shale::models
