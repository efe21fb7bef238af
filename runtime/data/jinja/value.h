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
using Dict = std::vector<std::pair<Value, Value>>;  // in the order of insertion

// Result of a lookup that found nothing. Prints as nothing; most other uses are errors.
struct Undefined {
  std::shared_ptr<const std::string> reason;  // "'x' is undefined"; null: no reason is known
};

struct None {};

struct Text {
  std::shared_ptr<const std::string> bytes;  // UTF-8
  bool is_safe = false;                      // Markup of the `safe` filter: `+` escapes other text
};

enum class SequenceForm : uint8_t {
  kList,
  kTuple,
  kView,    // dict.items() and its like: not indexed, not printed
  kRange,   // range(): not printed
  kStream,  // result of map, select and their like: true, without length, empty once it was read
};

struct Sequence {
  std::shared_ptr<List> items;  // changed by nothing but reading a stream
  SequenceForm form = SequenceForm::kList;
  int depth = 1;  // of values inside each other
};

struct Mapping {
  std::shared_ptr<const Dict> members;
  int depth = 1;
};

// namespace(): the one value that templates change. Lives until the rendering ends.
struct Namespace;

// `loop` inside a for statement.
struct Loop {
  Sequence sequence;
  size_t index = 0;
};

// A function, a method of a value, or a macro.
struct Function {
  std::string name;
  const Builtin* builtin = nullptr;   // null: a macro
  std::shared_ptr<const Value> self;  // of a method
  const Statement* macro = nullptr;
  std::weak_ptr<Scope> scope;  // where the macro is defined
};

// A value of a template, with the semantics of Python's. Copies share what they hold.
class Value {
 public:
  Value() = default;  // undefined
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
  // Throws DataError for an integer beyond 64 bits.
  explicit Value(const Json& json);

  // The value of that type, or null.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_integer() const { return is<int64_t>() || is<bool>(); }  // as in Python, bools are
  bool is_number() const { return is_integer() || is<double>(); }
  int64_t integer() const;          // of a value that is_integer()
  double real() const;              // of a value that is_number()
  const std::string* text() const;  // null: no string
  const Dict* members() const;      // null: no dict
  Namespace* space() const;         // null: no namespace

  bool is_true() const;
  int depth() const;              // 0: no other value inside
  std::string_view type() const;  // "str", "dict": Python's name, for messages

 private:
  std::variant<Undefined, None, bool, int64_t, double, Text, Sequence, Mapping, Namespace*,
               std::shared_ptr<const Loop>, std::shared_ptr<const Function>>
      data_;
};

struct Namespace {
  std::map<std::string, Value> members;
};

// The member with that key, or null.
const Value* find(const Dict& members, std::string_view key);

}  // namespace shale::jinja
