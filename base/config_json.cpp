#include <algorithm>
#include <nlohmann/json.hpp>

#include "shale/base/config_internal.h"
#include "shale/base/error.h"
#include "shale/base/json_limits.h"
#include "shale/base/parse.h"

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

// Null: the option was removed, and the file, of --print-config, has what it was without the flag.
ConfigField* field_of(const ConfigState& state, const std::string& source, const std::string& key,
                      const json& value) {
  std::vector<std::string> keys;
  for (const FieldPtr& field : state.fields) {
    if (field->key() == key) return field.get();
    keys.push_back(field->key());
  }
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  if (const RemovedOption* const removed = find_removed_option(name)) {
    if (value.is_null() || quote(value) == removed->unused) return nullptr;
    throw ConfigError(removed_message(cat(source, ": ", key), *removed));
  }
  const auto nearest = nearest_name(key, keys);
  throw ConfigError(cat(source, ": unknown key ", excerpt(quote(key)),
                        nearest ? cat("; did you mean ", quote(*nearest), "?") : ""));
}

ConfigError not_assigned(const ConfigField& field, const std::string& where,
                         const JsonValue& scalar) {
  const auto* const text = std::get_if<std::string>(&scalar.value);
  const auto* const removed = text != nullptr ? find_removed_option(field.name, *text) : nullptr;
  return ConfigError(removed != nullptr ? removed_message(cat(where, " ", quote(*text)), *removed)
                                        : mismatch(where, field, scalar.found));
}

// Calls fn; it is the config that is bad, not the data.
template <typename Fn>
auto as_config_error(Fn&& fn) {
  try {
    return fn();
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace

std::string json_quote(const std::string& text) {
  return quote(text);
}

void read_config_file(ConfigState& state, const std::string& path) {
  const std::string text =
      as_config_error([&] { return read_text_file(path, JsonLimits{}.max_bytes); });
  read_config_text(state, text, path);
}

void read_config_text(ConfigState& state, std::string_view text, const std::string& source) {
  as_config_error([&] { check_json(text, {}, source); });
  const json file = json::parse(text);
  if (!file.is_object()) {
    throw ConfigError(
        cat(source, ": expected an object of options, found ", excerpt(scalar_of(file).found)));
  }
  for (const auto& [key, value] : file.items()) {
    ConfigField* const field = field_of(state, source, key, value);
    if (field == nullptr || (value.is_null() && field->is_open())) continue;
    const JsonValue scalar = scalar_of(value);
    if (!field->assign_json(scalar)) throw not_assigned(*field, cat(source, ": ", key), scalar);
    field->is_set = true;
  }
}

}  // namespace shale
