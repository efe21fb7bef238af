#include "shale/runtime/data/jinja/builtins.h"

#include <algorithm>

#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale::jinja {

const Builtin* find_builtin(const std::vector<Builtin>& table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

std::string names_of(const std::vector<Builtin>& table) {
  std::string names;
  for (const Builtin& builtin : table) names += cat(names.empty() ? "" : ", ", builtin.name);
  return names;
}

Value call_builtin(Run& run, const Builtin& builtin, const Value& self, Arguments given) {
  run.spend_steps(1);
  if (builtin.takes_any) return builtin.call(run, self, given);
  const auto& parameters = builtin.parameters;
  const size_t count = given.positional.size();
  if (count > parameters.size()) {
    run.fail(cat(builtin.name, " takes at most ", parameters.size(), " arguments, found ", count));
  }
  given.positional.resize(parameters.size());
  std::vector<bool> is_given(parameters.size());
  std::fill_n(is_given.begin(), count, true);
  for (const auto& [name, value] : given.named) {
    const auto found = std::ranges::find(parameters, name);
    if (found == parameters.end()) {
      run.fail(cat(builtin.name, " has no argument '", excerpt(name), "'"));
    }
    const auto place = static_cast<size_t>(found - parameters.begin());
    if (is_given[place]) run.fail(cat(builtin.name, " has two values for '", name, "'"));
    given.positional[place] = value;
    is_given[place] = true;
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (!is_given[i]) run.fail(cat(builtin.name, " needs the argument '", parameters[i], "'"));
  }
  return builtin.call(run, self, given);
}

}  // namespace shale::jinja
