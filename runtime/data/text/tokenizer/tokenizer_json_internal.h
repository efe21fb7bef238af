#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "shale/base/json.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::tokenizer_internal {

// A value in a tokenizer.json, with its path for messages. Reading it as a wrong type throws
// DataError. A member with the value null counts as absent.
class JsonNode {
 public:
  JsonNode(const Json& value, std::string_view source, std::string place)
      : value_(value), source_(source), place_(std::move(place)) {}

  bool has(const char* key) const;
  JsonNode operator[](const char* key) const;
  // calls fn for each item of a list
  void each(const std::function<void(const JsonNode& item)>& fn) const;
  void each_member(
      const std::function<void(const std::string& key, const JsonNode& value)>& fn) const;

  std::string text() const;
  int64_t integer(int64_t least, int64_t most) const;
  double real() const;
  bool flag(const char* key, bool fallback) const;  // returns a boolean member
  // Reads ["a", "b"], or "a b" as written by tokenizers before 0.20.
  std::pair<std::string, std::string> pair() const;

  [[noreturn]] void fail(std::string_view want) const;

 private:
  const Json& value_;
  std::string_view source_;
  std::string place_;
};

// Reads all members except model and added_tokens.
void read_pipeline(const JsonNode& root, TokenizerSpec& spec);

}  // namespace shale::tokenizer_internal
