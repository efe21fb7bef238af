#include <nlohmann/json.hpp>

#include "runtime/base/config_internal.h"
#include "runtime/base/error.h"
#include "runtime/base/json_limits.h"
#include "runtime/base/parse.h"

namespace shale {
namespace {

using nlohmann::json;

std::string quote(const json& value) {
  // A path need not be UTF-8; JSON must be.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

JsonValue scalar_of(const json& value) {
  switch (value.type()) {
    case json::value_t::boolean: return {value.get<bool>(), quote(value)};
    case json::value_t::number_integer: return {value.get<int64_t>(), quote(value)};
    case json::value_t::number_unsigned:
      if (value.get<uint64_t>() > uint64_t{INT64_MAX}) return {value.get<double>(), quote(value)};
      return {value.get<int64_t>(), quote(value)};
    case json::value_t::number_float:
      return {value.get<double>(), cat("the number ", quote(value))};
    case json::value_t::string: return {value.get<std::string>(), cat("the text ", quote(value))};
    case json::value_t::array: return {{}, "an array"};
    case json::value_t::object: return {{}, "an object"};
    default: return {{}, "null"};
  }
}

ConfigField& field_of(const ConfigState& state, const std::string& path, const std::string& key) {
  std::vector<std::string> keys;
  for (const FieldPtr& field : state.fields) {
    if (field->key() == key) return *field;
    keys.push_back(field->key());
  }
  const auto nearest = nearest_name(key, keys);
  throw ConfigError(cat(path, ": unknown key ", excerpt(quote(key)),
                        nearest ? cat("; did you mean ", quote(*nearest), "?") : ""));
}

json parse_checked(const std::string& path) {
  try {
    const JsonLimits limits;
    const std::string text = read_text_file(path, limits.max_bytes);
    check_json(text, limits, path);
    return json::parse(text);
  } catch (const DataError& error) {
    throw ConfigError(error.what());  // it is the config that is bad, not the data
  }
}

}  // namespace

std::string json_quote(const std::string& text) {
  return quote(text);
}

void read_config_file(ConfigState& state, const std::string& path) {
  const json file = parse_checked(path);
  if (!file.is_object()) {
    throw ConfigError(cat(path, ": expected an object of options, found ", scalar_of(file).found));
  }
  for (const auto& [key, value] : file.items()) {
    ConfigField& field = field_of(state, path, key);
    if (value.is_null() && field.is_open()) continue;
    const JsonValue scalar = scalar_of(value);
    if (!field.assign_json(scalar)) {
      throw ConfigError(mismatch(cat(path, ": ", key), field, scalar.found));
    }
    field.is_set = true;
  }
}

}  // namespace shale
