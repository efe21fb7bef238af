#include "shale/runtime/io/json_object.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json_limits.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale {

struct JsonObject::State {
  std::string source;
  nlohmann::json object;

  // The value, or null if the key is absent.
  const nlohmann::json* find(std::string_view key) const {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
};

JsonObject::JsonObject(std::string_view text, std::string source) {
  check_json(text, {}, source);
  nlohmann::json object = nlohmann::json::parse(text);
  if (!object.is_object()) throw DataError(cat(source, ": want a JSON object"));
  state_ = std::make_shared<const State>(State{std::move(source), std::move(object)});
}

JsonObject JsonObject::load(const std::string& path) {
  const MappedFile file(path, {.allow_empty = true});
  // A copy, which nobody changes between two looks at it.
  const std::string text(file.text());
  file.check();
  return {text, path};
}

bool JsonObject::has(std::string_view key) const {
  return state_->find(key) != nullptr;
}

bool JsonObject::is_null(std::string_view key) const {
  const auto it = state_->object.find(key);
  return it != state_->object.end() && it->is_null();
}

void JsonObject::fail(std::string_view key, std::string_view want) const {
  const nlohmann::json* value = state_->find(key);
  const std::string found = value == nullptr ? "missing" : cat("is ", excerpt(value->dump(), 80));
  throw DataError(cat(state_->source, ": '", key, "' ", found, ", want ", want));
}

int64_t JsonObject::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const nlohmann::json* value = state_->find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_number_integer()) fail(key, "an integer");
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value->is_number_unsigned() && value->get<uint64_t>() > kMax) fail(key, "a smaller integer");
  return value->get<int64_t>();
}

double JsonObject::real(std::string_view key, std::optional<double> fallback) const {
  const nlohmann::json* value = state_->find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_number()) fail(key, "a number");
  return value->get<double>();
}

bool JsonObject::flag(std::string_view key, std::optional<bool> fallback) const {
  const nlohmann::json* value = state_->find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::string JsonObject::text(std::string_view key, std::optional<std::string> fallback) const {
  const nlohmann::json* value = state_->find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const nlohmann::json* value = state_->find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) fail(key, "an object");
  return JsonObject(std::make_shared<const State>(State{cat(state_->source, ": ", key), *value}));
}

namespace {

using IsType = bool (nlohmann::json::*)() const noexcept;

template <typename T>
std::vector<T> list_of(const JsonObject& object, std::string_view key, const nlohmann::json* value,
                       IsType is_type, const char* want) {
  if (value == nullptr) return {};
  const auto fits = [is_type](const nlohmann::json& item) { return (item.*is_type)(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), fits)) {
    object.fail(key, want);
  }
  return value->get<std::vector<T>>();
}

}  // namespace

std::vector<std::string> JsonObject::texts(std::string_view key) const {
  return list_of<std::string>(*this, key, state_->find(key), &nlohmann::json::is_string,
                              "a list of strings");
}

std::vector<int64_t> JsonObject::integers(std::string_view key) const {
  return list_of<int64_t>(*this, key, state_->find(key), &nlohmann::json::is_number_integer,
                          "a list of integers");
}

std::vector<double> JsonObject::reals(std::string_view key) const {
  return list_of<double>(*this, key, state_->find(key), &nlohmann::json::is_number,
                         "a list of numbers");
}

std::vector<std::vector<int64_t>> JsonObject::integer_lists(std::string_view key) const {
  constexpr const char* kWant = "a list of lists of integers";
  const nlohmann::json* const value = state_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(key, kWant);
  std::vector<std::vector<int64_t>> lists;
  for (const nlohmann::json& item : *value) {
    if (!item.is_array()) fail(key, kWant);
    lists.push_back(list_of<int64_t>(*this, key, &item, &nlohmann::json::is_number_integer, kWant));
  }
  return lists;
}

}  // namespace shale
