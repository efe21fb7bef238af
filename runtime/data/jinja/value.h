#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shale/base/json.h"

namespace shale::jinja {

struct Builtin;
struct Statement;
class Scope;
class Value;

using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // pairs in insertion order

// Result of a failed lookup. It prints as an empty text; most other uses are errors.
struct Undefined {
  std::shared_ptr<const std::string> reason;  // such as "'x' is undefined"; null: unknown reason
};

struct None {};

struct Text {
  std::shared_ptr<const std::string> bytes;  // UTF-8
  // true: result of the `safe` filter; `+` escapes a text that is added to it
  bool is_safe = false;
};

enum class SequenceForm : uint8_t {
  kList,
  kTuple,
  kView,    // result of dict.items() and similar methods; cannot be indexed or printed
  kRange,   // result of range(); cannot be printed
  kStream,  // result of map, select and similar filters; is true, has no length, can be read once
};

struct Sequence {
  std::shared_ptr<List> items;  // constant, except that reading a stream removes its items
  SequenceForm form = SequenceForm::kList;
  int depth = 1;  // nesting depth of values
};

struct Mapping {
  std::shared_ptr<const Dict> members;
  int depth = 1;
};

// namespace(): the only value that templates can change. It lives until the end of the rendering.
struct Namespace;

// Value of `loop` inside a for statement.
struct Loop {
  Sequence sequence;
  size_t index = 0;
};

// A function, a method of a value, or a macro.
struct Function {
  std::string name;
  const Builtin* builtin = nullptr;   // null: a macro
  std::shared_ptr<const Value> self;  // the object, if it is a method
  const Statement* macro = nullptr;
  std::weak_ptr<Scope> scope;  // scope where the macro is defined
};

// A value of a template, with Python's semantics. Copies share their contents.
class Value {
 public:
  Value() = default;  // an undefined value
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(None none) : data_(none) {}
  Value(std::same_as<bool> auto value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Text text) : data_(std::move(text)) {}
  Value(std::string text) : data_(Text{std::make_shared<const std::string>(std::move(text))}) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(List items, SequenceForm form = SequenceForm::kList);
  Value(Dict members);
  Value(Sequence sequence) : data_(std::move(sequence)) {}
  Value(Namespace* space) : data_(space) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}
  // Throws DataError for an integer of more than 64 bits.
  explicit Value(const Json& json);

  // The contents of type T, or null.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  // true for bools, too, as in Python
  bool is_integer() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integer() || is<double>(); }
  int64_t integer() const;          // value of an integer or bool; requires is_integer()
  double real() const;              // value as a floating-point number; requires is_number()
  const std::string* text() const;  // null if the value is not a string
  const Dict* members() const;      // null if the value is not a dict
  Namespace* space() const;         // null if the value is not a namespace

  bool is_true() const;
  int depth() const;  // nesting depth; 0: contains no other value
  // Python's name of the type, such as "str" or "dict", for messages
  std::string_view type() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, Text, Sequence, Mapping, Namespace*,
               std::shared_ptr<const Loop>, std::shared_ptr<const Function>>
      data_;
};

struct Namespace {
  std::map<std::string, Value> members;
};

// Returns the member with this key; null if there is none.
const Value* find(const Dict& members, std::string_view key);

}  // namespace shale::jinja
