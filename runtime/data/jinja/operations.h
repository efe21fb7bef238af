#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shale/runtime/data/jinja/python_text.h"
#include "shale/runtime/data/jinja/run.h"
#include "shale/runtime/data/jinja/value.h"

// Python's operators and functions on values. Each throws DataError, with the line, for unsupported
// operands.
namespace shale::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcatenate,  // a ~ b
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

Value arithmetic(Run& run, Operator op, const Value& a, const Value& b);
bool compare(Run& run, Operator op, const Value& a, const Value& b);
Value negative(Run& run, const Value& value);

// Throws DataError if a value is undefined. The message gives the reason.
void require_defined(Run& run, const Value& value);
bool is_list(const Value& value);  // returns true for a list or a tuple

// attribute() returns value.name, item() returns value[key]. The result is undefined if it does not
// exist.
Value attribute(Run& run, const Value& value, std::string_view name);
Value item(Run& run, const Value& value, const Value& key);
Value slice(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step);

// Returns the items of a list, the keys of a dict, or the characters of a string. A stream is empty
// afterwards.
Sequence iterate(Run& run, const Value& value);
int64_t length_of(Run& run, const Value& value);

// Appends what Python's str(value) returns.
void append_str(Run& run, const Value& value, std::string& out);
std::string str(Run& run, const Value& value);

// Returns text.upper(), or what a similar Python method returns.
std::string cased(Run& run, std::string_view text, Case to);

// Returns Python's text % values, with %s, %d and %%.
std::string format(Run& run, std::string_view text, const List& values);

// Format of json.dumps().
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool breaks_lines = false;
  std::string indent;  // indent of each level, if breaks_lines
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace shale::jinja
