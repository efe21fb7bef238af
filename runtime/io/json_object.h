#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shale {

// A JSON object from an untrusted file, read key by key with an expected type for each. A key with
// the value null counts as absent.
class JsonObject {
 public:
  // Throws DataError, which begins with `source`, unless the text is one JSON object (Json::parse).
  JsonObject(std::string_view text, std::string source);
  // Throws MissingInputError if the file does not exist, DataError like the constructor, and
  // DataError if it is not a regular file: a named pipe in a downloaded folder must not block a
  // run.
  static JsonObject load(const std::string& path);

  bool has(std::string_view key) const;
  // Returns true if the key is present with the value null, for callers that must distinguish it
  // from an absent key.
  bool is_null(std::string_view key) const;

  // Return the value of a key. Throw DataError with source, key, expected type and found value if
  // the value has another type, or if the key is absent and no fallback is given. 1.0 is not
  // accepted as an integer, but 1 is accepted as a real number.
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double real(std::string_view key, std::optional<double> fallback = {}) const;
  bool flag(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;

  // Returns the JSON object that is the value of the key; nullopt if the key is absent.
  std::optional<JsonObject> object(std::string_view key) const;
  // Returns a list of strings, integers or numbers; empty if the key is absent.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> reals(std::string_view key) const;
  // Returns a list of lists of integers; empty if the key is absent.
  std::vector<std::vector<int64_t>> integer_lists(std::string_view key) const;

  // Throws DataError: "<source>: '<key>' is <value>, expected <want>".
  [[noreturn]] void fail(std::string_view key, std::string_view want) const;

 private:
  struct State;
  explicit JsonObject(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace shale
