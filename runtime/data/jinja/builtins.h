#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/runtime/data/jinja/run.h"
#include "shale/runtime/data/jinja/value.h"

namespace shale::jinja {

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A filter, test, function or method that a template can call by name.
struct Builtin {
  std::string_view name;
  // Names of the parameters, in order. The first `required` arguments must be given. Other omitted
  // arguments are undefined.
  std::vector<std::string_view> parameters;
  size_t required = 0;
  // Implements the builtin. self: the value that is filtered or tested, or the object of a method.
  // given: one argument per parameter; if `takes_any`, the arguments as written in the template.
  Value (*call)(Run& run, const Value& self, const Arguments& given) = nullptr;
  bool takes_any = false;
};

const std::vector<Builtin>& filters();
const std::vector<Builtin>& tests();  // tables of tests, which return booleans
const std::vector<Builtin>& functions();
const std::vector<Builtin>& text_methods();
const std::vector<Builtin>& dict_methods();

const Builtin* find_builtin(const std::vector<Builtin>& table, std::string_view name);
std::string names_of(const std::vector<Builtin>& table);  // returns all names as one text "a, b, c"

// Calls the builtin. Throws DataError for missing, unknown or surplus arguments.
Value call_builtin(Run& run, const Builtin& builtin, const Value& self, Arguments given);

}  // namespace shale::jinja
