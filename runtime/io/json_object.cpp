#include "shale/runtime/io/json_object.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale {

struct JsonObject::State {
  std::string source;
  Json object;

  // Returns the value of a key; null if the key is absent or its value is null.
  const Json* find(std::string_view key) const {
    const Json* value = object.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
};

JsonObject::JsonObject(std::string_view text, std::string source) {
  Json object = Json::parse(text, {}, source);
  if (!object.is_object()) throw DataError(cat(source, ": expected a JSON object"));
  state_ = std::make_shared<const State>(State{std::move(source), std::move(object)});
}

JsonObject JsonObject::load(const std::string& path) {
  const MappedFile file(path, {.allow_empty = true});
  // Copies the text, because the file might change between two reads of the mapping.
  const std::string text(file.text());
  file.check();
  return {text, path};
}

bool JsonObject::has(std::string_view key) const {
  return state_->find(key) != nullptr;
}

bool JsonObject::is_null(std::string_view key) const {
  const Json* value = state_->object.find(key);
  return value != nullptr && value->is_null();
}

void JsonObject::fail(std::string_view key, std::string_view want) const {
  const Json* value = state_->find(key);
  const std::string found = value == nullptr ? "missing" : cat("is ", excerpt(value->dump(), 80));
  throw DataError(cat(state_->source, ": '", key, "' ", found, ", expected ", want));
}

namespace {

using Fits = bool (*)(const Json& value);

bool is_int64(const Json& value) {
  return value.int64().has_value();
}
bool is_number(const Json& value) {
  return value.is_number();
}
bool is_string(const Json& value) {
  return value.is_string();
}

template <typename T>
T value_of(const JsonObject& object, std::string_view key, const Json* value,
           const std::optional<T>& fallback, Fits fits, const char* want) {
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !fits(*value)) object.fail(key, want);
  return value->get<T>();
}

template <typename T>
std::vector<T> list_of(const JsonObject& object, std::string_view key, const Json* value, Fits fits,
                       const char* want) {
  if (value == nullptr) return {};
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), fits)) {
    object.fail(key, want);
  }
  return value->get<std::vector<T>>();
}

}  // namespace

int64_t JsonObject::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const Json* value = state_->find(key);
  const bool is_large = value != nullptr && value->is_integer();
  return value_of(*this, key, value, fallback, is_int64,
                  is_large ? "a smaller integer" : "an integer");
}

double JsonObject::real(std::string_view key, std::optional<double> fallback) const {
  return value_of(*this, key, state_->find(key), fallback, is_number, "a number");
}

bool JsonObject::flag(std::string_view key, std::optional<bool> fallback) const {
  constexpr Fits kIsBoolean = [](const Json& value) { return value.is_boolean(); };
  return value_of(*this, key, state_->find(key), fallback, kIsBoolean, "true or false");
}

std::string JsonObject::text(std::string_view key, std::optional<std::string> fallback) const {
  return value_of(*this, key, state_->find(key), fallback, is_string, "a string");
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const Json* value = state_->find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) fail(key, "an object");
  return JsonObject(std::make_shared<const State>(State{cat(state_->source, ": ", key), *value}));
}

std::vector<std::string> JsonObject::texts(std::string_view key) const {
  return list_of<std::string>(*this, key, state_->find(key), is_string, "a list of strings");
}

std::vector<int64_t> JsonObject::integers(std::string_view key) const {
  return list_of<int64_t>(*this, key, state_->find(key), is_int64, "a list of integers");
}

std::vector<double> JsonObject::reals(std::string_view key) const {
  return list_of<double>(*this, key, state_->find(key), is_number, "a list of numbers");
}

std::vector<std::vector<int64_t>> JsonObject::integer_lists(std::string_view key) const {
  constexpr const char* kWant = "a list of lists of integers";
  const Json* const value = state_->find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail(key, kWant);
  std::vector<std::vector<int64_t>> lists;
  for (const Json& item : *value) {
    lists.push_back(list_of<int64_t>(*this, key, &item, is_int64, kWant));
  }
  return lists;
}

}  // namespace shale
