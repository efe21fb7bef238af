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

// What a JSON text from outside may look like.
struct JsonLimits {
  int64_t max_bytes = int64_t{1} << 20;
  int max_depth = 64;  // arrays and objects inside each other
  // Keys, strings, numbers, lists, objects...: a tree of them is many times as large as the text.
  int64_t max_values = int64_t{1} << 22;
};

// A JSON value. Objects keep the order in which their members came, and are searched from the
// front: what has many members is iterated over, and made of a Json::Object. Whatever is asked of a
// value of another type is a DataError that says what was expected and what was found.
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
  // An object if each item is a list of a string and a value, else an array: {{"a", 1}, {"b", 2}}.
  Json(std::initializer_list<Json> items);
  static Json array(std::initializer_list<Json> items = {}) { return Array(items); }
  static Json object() { return Object(); }

  // Reads one JSON document: valid UTF-8, no key twice in one object, nothing behind it, no number
  // beyond double. Throws DataError, starting with `source` (a path), for what is none, or is
  // beyond the limits.
  static Json parse(std::string_view text, const JsonLimits& limits, std::string_view source);
  // The text, on one line, or with so many spaces for each level. What is not UTF-8 becomes U+FFFD,
  // a number that is not finite null.
  std::string dump(int indent = -1) const;

  bool is_null() const { return is<std::nullptr_t>(); }
  bool is_boolean() const { return is<bool>(); }
  bool is_integer() const { return is<int64_t>() || is<uint64_t>(); }  // 1.0 is none
  bool is_number() const { return is_integer() || is<double>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_array() const { return is<Array>(); }
  bool is_object() const { return is<Object>(); }

  bool boolean() const;
  double real() const;
  const std::string& text() const;
  // The integer, if the value is one and fits.
  std::optional<int64_t> int64() const;
  int64_t integer(int64_t min = INT64_MIN, int64_t max = INT64_MAX) const;
  // A bool, a number, a std::string, or a std::vector of them.
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

  // ---- Of arrays and objects; others have no size ----

  size_t size() const;
  bool empty() const { return size() == 0; }

  // ---- Of arrays ----

  Array::const_iterator begin() const { return items_of_array().begin(); }
  Array::const_iterator end() const { return items_of_array().end(); }
  const Json& operator[](size_t index) const;
  Json& operator[](size_t index);
  void push_back(Json item);  // null becomes an array

  // ---- Of objects ----

  const Object& items() const;
  // The member, or null if there is none, or this is no object.
  const Json* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json& operator[](std::string_view key) const;
  Json& operator[](std::string_view key);  // adds it if it is missing; null becomes an object
  void erase(std::string_view key);
  // Puts members in the order of their keys, here and in all that is inside.
  void sort_keys();

  // Objects are compared in any order, numbers by their values.
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

// What a text is made of, in its order, where it is not kept.
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

// As Json::parse, but for limits and keys that appear twice, with which the visitor has to do. What
// it throws ends the visit.
void visit_json(std::string_view text, std::string_view source, JsonVisitor& visitor);

enum class BrokenUtf8 { kReplaced, kRefused };

// `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD, or are a
// DataError.
std::string json_quote(std::string_view text, BrokenUtf8 broken = BrokenUtf8::kReplaced);

}  // namespace shale
