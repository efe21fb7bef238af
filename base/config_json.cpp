#include <algorithm>

#include "shale/base/config_internal.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"

namespace shale {
namespace {

JsonValue scalar_of(const Json& value) {
  if (value.is_boolean()) return {value.boolean(), value.dump()};
  if (const auto integer = value.int64()) return {*integer, value.dump()};
  if (value.is_integer()) return {value.real(), value.dump()};
  if (value.is_number()) return {value.real(), cat("the number ", value.dump())};
  if (value.is_string()) return {value.text(), cat("the text ", value.dump())};
  if (value.is_array()) return {{}, "an array"};
  if (value.is_object()) return {{}, "an object"};
  return {{}, "null"};
}

// Finds the field of a key. Returns null for a removed option that the run of this file did not
// use. Its value is then null, or the default that --print-config wrote.
ConfigField* field_of(const ConfigState& state, const std::string& source, const std::string& key,
                      const Json& value) {
  std::vector<std::string> keys;
  for (const FieldPtr& field : state.fields) {
    if (field->key() == key) return field.get();
    keys.push_back(field->key());
  }
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  if (const RemovedOption* const removed = find_removed_option(name)) {
    if (value.is_null() || value.dump() == removed->unused) return nullptr;
    throw ConfigError(removed_message(cat(source, ": ", key), *removed));
  }
  if (const std::string advice = synonym_advice(state, name); !advice.empty()) {
    throw ConfigError(cat(source, ": unknown key ", json_quote(key), "; ", advice));
  }
  const auto nearest = nearest_name(key, keys);
  throw ConfigError(cat(source, ": unknown key ", excerpt(json_quote(key)),
                        nearest ? cat("; did you mean ", json_quote(*nearest), "?") : ""));
}

ConfigError not_assigned(const ConfigState& state, const ConfigField& field,
                         const std::string& where, const JsonValue& scalar) {
  const auto* const text = std::get_if<std::string>(&scalar.value);
  const auto* const removed = text != nullptr ? find_removed_option(field.name, *text) : nullptr;
  if (removed != nullptr) {
    return ConfigError(removed_message(cat(where, " ", json_quote(*text)), *removed));
  }
  const std::string advice =
      text != nullptr ? synonym_advice(state, cat(field.name, "=", *text)) : "";
  return ConfigError(cat(mismatch(where, field, scalar.found), advice.empty() ? "" : "; ", advice));
}

// Calls fn and converts its errors to ConfigError, because the file is a configuration and not
// data.
template <typename Fn>
auto as_config_error(Fn&& fn) {
  try {
    return fn();
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace

void read_config_file(ConfigState& state, const std::string& path) {
  const std::string text =
      as_config_error([&] { return read_text_file(path, JsonLimits{}.max_bytes); });
  read_config_text(state, text, path);
}

void read_config_text(ConfigState& state, std::string_view text, const std::string& source) {
  const Json file = as_config_error([&] { return Json::parse(text, {}, source); });
  if (!file.is_object()) {
    throw ConfigError(
        cat(source, ": expected an object of options, found ", excerpt(scalar_of(file).found)));
  }
  for (const auto& [key, value] : file.items()) {
    ConfigField* const field = field_of(state, source, key, value);
    if (field == nullptr || (value.is_null() && field->is_open())) continue;
    const JsonValue scalar = scalar_of(value);
    if (!field->assign_json(scalar))
      throw not_assigned(state, *field, cat(source, ": ", key), scalar);
    field->is_set = true;
  }
}

}  // namespace shale
