#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shale {

// A JSON object from a file that nobody vouches for, read key by key with the type that each key
// must have. A key whose value is null counts as absent.
class JsonObject {
 public:
  // Throws DataError, starting with `source`, unless the text is one JSON object (Json::parse).
  JsonObject(std::string_view text, std::string source);
  // Throws MissingInputError if the file does not exist, DataError as above, and if it is something
  // else than a file: a named pipe in a folder from somewhere must not make a run wait.
  static JsonObject load(const std::string& path);

  bool has(std::string_view key) const;
  // Whether the key is there and its value is null, where that means something.
  bool is_null(std::string_view key) const;

  // Throw DataError, naming source, key, wanted type and found value, if the value has another
  // type, or if the key is absent and there is no fallback. 1.0 is no integer; 1 is a real number.
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double real(std::string_view key, std::optional<double> fallback = {}) const;
  bool flag(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;

  // The object below a key; none if the key is absent.
  std::optional<JsonObject> object(std::string_view key) const;
  // A list of strings, of integers, of numbers; empty if the key is absent.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> reals(std::string_view key) const;
  // A list of lists of integers; empty if the key is absent.
  std::vector<std::vector<int64_t>> integer_lists(std::string_view key) const;

  // DataError: "<source>: '<key>' is <value>, expected <want>".
  [[noreturn]] void fail(std::string_view key, std::string_view want) const;

 private:
  struct State;
  explicit JsonObject(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace shale
