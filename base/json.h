#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace shale {

// Limits for JSON texts from untrusted sources.
struct JsonLimits {
  int64_t max_bytes = int64_t{1} << 20;
  int max_depth = 64;  // maximum nesting of arrays and objects
  // Maximum number of keys and values. The tree in memory is many times larger than the text.
  int64_t max_values = int64_t{1} << 22;
};

// A JSON value. Objects keep the order of insertion. find() searches linearly: code should iterate
// over objects with many members, and build them from a Json::Object. Access to a value of another
// type throws DataError, which says what was expected and what was found.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json(std::nullptr_t = nullptr) {}
  Json(std::same_as<bool> auto value) : value_(value) {}
  Json(std::floating_point auto value) : value_(static_cast<double>(value)) {}
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>) Json(T value) {
    if (std::in_range<int64_t>(value)) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<uint64_t>(value);
    }
  }
  Json(const char* text) : value_(std::string(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(Array items) : value_(std::move(items)) {}
  Json(Object members) : value_(std::move(members)) {}
  template <typename T>
  Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
  // Makes an object if each item is a pair of a string and a value, as in {{"a", 1}, {"b", 2}};
  // otherwise an array.
  Json(std::initializer_list<Json> items);
  static Json array(std::initializer_list<Json> items = {}) { return Array(items); }
  static Json object() { return Object(); }

  // Parses one JSON document. It must be valid UTF-8, without duplicate keys in an object, text
  // after the document, or numbers that a double cannot represent. Throws DataError, whose message
  // begins with `source` (a path), for invalid documents and documents beyond the limits.
  static Json parse(std::string_view text, const JsonLimits& limits, std::string_view source);
  // Serialises to one line, or with `indent` spaces for each level. Bytes that are not UTF-8 become
  // U+FFFD, numbers that are not finite become null.
  std::string dump(int indent = -1) const;

  bool is_null() const { return is<std::nullptr_t>(); }
  bool is_boolean() const { return is<bool>(); }
  bool is_integer() const { return is<int64_t>() || is<uint64_t>(); }  // false for 1.0
  bool is_number() const { return is_integer() || is<double>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_array() const { return is<Array>(); }
  bool is_object() const { return is<Object>(); }

  bool boolean() const;
  double real() const;
  const std::string& text() const;
  // Returns the integer, if the value is an integer that fits int64_t.
  std::optional<int64_t> int64() const;
  int64_t integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  // T: bool, a number, std::string, or a std::vector of them.
  template <typename T>
  T get() const {
    if constexpr (std::same_as<T, bool>) {
      return boolean();
    } else if constexpr (std::same_as<T, uint64_t>) {
      return is<uint64_t>() ? std::get<uint64_t>(value_) : static_cast<T>(integer(0));
    } else if constexpr (std::integral<T>) {
      return static_cast<T>(integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(real());
    } else if constexpr (std::same_as<T, std::string>) {
      return text();
    } else {
      T list;
      for (const Json& item : *this) list.push_back(item.get<typename T::value_type>());
      return list;
    }
  }

  // ---- Arrays and objects; other values have no size ----

  size_t size() const;
  bool empty() const { return size() == 0; }

  // ---- Arrays ----

  Array::const_iterator begin() const { return items_of_array().begin(); }
  Array::const_iterator end() const { return items_of_array().end(); }
  const Json& operator[](size_t index) const;
  Json& operator[](size_t index);
  void push_back(Json item);  // turns null into an array

  // ---- Objects ----

  const Object& items() const;
  // Returns the member, or null if it is missing or this is no object.
  const Json* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& operator[](std::string_view key) const;
  Json& operator[](std::string_view key);  // adds a missing member; turns null into an object
  void erase(std::string_view key);
  // Sorts the members of this object and of all nested objects by key.
  void sort_keys();

  // Ignores the order of members; compares numbers by value.
  friend bool operator==(const Json& a, const Json& b);

 private:
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  const Array& items_of_array() const;
  [[noreturn]] void mistyped(std::string_view expected) const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

// Receives the parts of a JSON text in order, so that the text need not be kept as a tree.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void value(Json&& scalar) = 0;  // null, a boolean, a number or a string
  virtual void key(std::string&& name) = 0;
  virtual void start_object() = 0;
  virtual void end_object() = 0;
  virtual void start_array() = 0;
  virtual void end_array() = 0;
};

// Parses like Json::parse, but without limits and without a check for duplicate keys; the visitor
// has to do both. An exception of the visitor ends the parse.
void visit_json(std::string_view text, std::string_view source, JsonVisitor& visitor);

enum class BrokenUtf8 { kReplaced, kRefused };

// Returns `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD, or throw
// DataError.
std::string json_quote(std::string_view text, BrokenUtf8 broken = BrokenUtf8::kReplaced);

}  // namespace shale
