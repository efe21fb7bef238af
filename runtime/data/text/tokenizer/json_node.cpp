
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_json_internal.h"

namespace shale::tokenizer_internal {

void JsonNode::fail(std::string_view want) const {
  // The message describes a list or an object by its size instead of its contents.
  const std::string found = value_.is_array()    ? cat("array of ", value_.size())
                            : value_.is_object() ? cat("object of ", value_.size())
                                                 : excerpt(value_.dump(), 60);
  const std::string place = place_.empty() ? "" : cat("'", excerpt(place_, 120), "' is ");
  throw DataError(cat(source_, ": ", place, found, ", expected ", want));
}

bool JsonNode::has(const char* key) const {
  if (!value_.is_object()) fail("an object");
  const Json* member = value_.find(key);
  return member != nullptr && !member->is_null();
}

JsonNode JsonNode::operator[](const char* key) const {
  const std::string place = place_.empty() ? key : cat(place_, ".", key);
  if (!has(key)) throw DataError(cat(source_, ": '", excerpt(place, 120), "' is missing"));
  return {value_[key], source_, place};
}

void JsonNode::each(const std::function<void(const JsonNode& item)>& fn) const {
  if (!value_.is_array()) fail("a list");
  for (size_t i = 0; i < value_.size(); ++i) {
    fn(JsonNode(value_[i], source_, cat(place_, "[", i, "]")));
  }
}

void JsonNode::each_member(
    const std::function<void(const std::string& key, const JsonNode& value)>& fn) const {
  if (!value_.is_object()) fail("an object");
  for (const auto& [key, value] : value_.items()) {
    fn(key, JsonNode(value, source_, cat(place_, ".", key)));
  }
}

std::string JsonNode::text() const {
  if (!value_.is_string()) fail("a string");
  return value_.text();
}

int64_t JsonNode::integer(int64_t least, int64_t most) const {
  const std::optional<int64_t> number = value_.int64();
  if (!number || *number < least || *number > most) {
    fail(cat("an integer from ", least, " to ", most));
  }
  return *number;
}

double JsonNode::real() const {
  if (!value_.is_number()) fail("a number");
  return value_.real();
}

bool JsonNode::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& value = value_[key];
  if (!value.is_boolean()) (*this)[key].fail("true or false");
  return value.boolean();
}

std::pair<std::string, std::string> JsonNode::pair() const {
  if (value_.is_array() && value_.size() == 2 && value_[0].is_string() && value_[1].is_string()) {
    return {value_[0].text(), value_[1].text()};
  }
  const std::string both = value_.is_string() ? value_.text() : "";
  const size_t space = both.find(' ');
  if (space == both.npos || both.find(' ', space + 1) != both.npos) fail("a pair of strings");
  return {both.substr(0, space), both.substr(space + 1)};
}

}  // namespace shale::tokenizer_internal
