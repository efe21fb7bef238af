#include "shale/runtime/data/jinja/operations.h"

#include <algorithm>
#include <utility>

#include "shale/base/parse.h"
#include "shale/base/text.h"
#include "shale/runtime/data/jinja/builtins.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale::jinja {
namespace {

Value undefined(std::string reason) {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

bool is_indexed(const Value& value) {
  const auto* sequence = value.as<Sequence>();
  return is_list(value) || (sequence != nullptr && sequence->form == SequenceForm::kRange);
}

bool equals(Run& run, const Value& a, const Value& b) {
  const Run::Nested nested(run);
  run.spend_steps(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
    return a.real() == b.real();
  }
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
  const auto* sequence = a.as<Sequence>();
  const auto* other = b.as<Sequence>();
  if (sequence != nullptr && other != nullptr) {
    return sequence->form == other->form &&
           std::ranges::equal(*sequence->items, *other->items,
                              [&run](const auto& x, const auto& y) { return equals(run, x, y); });
  }
  if (a.members() != nullptr && b.members() != nullptr) {
    const auto in_b = [&](const auto& member) {
      return std::ranges::any_of(*b.members(), [&](const auto& candidate) {
        return equals(run, member.first, candidate.first) &&
               equals(run, member.second, candidate.second);
      });
    };
    return a.members()->size() == b.members()->size() && std::ranges::all_of(*a.members(), in_b);
  }
  if (a.space() != nullptr) return a.space() == b.space();
  return (a.is<None>() && b.is<None>()) || (a.is<Undefined>() && b.is<Undefined>());
}

bool is_less(Run& run, const Value& a, const Value& b) {
  const Run::Nested nested(run);
  run.spend_steps(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
    return a.real() < b.real();
  }
  // byte order of UTF-8 is the order of code points
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() < *b.text();
  if (is_list(a) && is_list(b) && a.type() == b.type()) {
    const List& left = *a.as<Sequence>()->items;
    const List& right = *b.as<Sequence>()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equals(run, left[i], right[i])) return is_less(run, left[i], right[i]);
    }
    return left.size() < right.size();
  }
  require_defined(run, a);
  require_defined(run, b);
  run.fail(cat("cannot compare ", a.type(), " with ", b.type()));
}

const Value* find_key(Run& run, const Dict& members, const Value& key) {
  run.spend_steps(1 + std::ssize(members) / 16);
  if (key.text() != nullptr) return find(members, *key.text());
  for (const auto& [name, value] : members) {
    if (equals(run, name, key)) return &value;
  }
  return nullptr;
}

bool is_in(Run& run, const Value& value, const Value& container) {
  if (const Dict* members = container.members()) return find_key(run, *members, value) != nullptr;
  if (const std::string* text = container.text()) {
    if (value.text() == nullptr) {
      require_defined(run, value);
      run.fail(cat("'in' a string needs a string on its left, found ", value.type()));
    }
    run.spend_steps(1 + std::ssize(*text) / 64);
    return find_text(*text, *value.text()) != std::string::npos;
  }
  const Sequence sequence = iterate(run, container);
  return std::ranges::any_of(*sequence.items,
                             [&](const Value& one) { return equals(run, one, value); });
}

Value method(const std::string& name, const Builtin& builtin, const Value& self) {
  return std::make_shared<const Function>(
      Function{.name = name, .builtin = &builtin, .self = std::make_shared<const Value>(self)});
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const List& items = *loop.sequence.items;
  const auto at = static_cast<int64_t>(loop.index);
  const auto length = std::ssize(items);
  if (name == "index") return at + 1;
  if (name == "index0") return at;
  if (name == "revindex") return length - at;
  if (name == "revindex0") return length - at - 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == length;
  if (name == "length") return length;
  if (name == "previtem") return at > 0 ? items[loop.index - 1] : undefined("no previous item");
  if (name == "nextitem")
    return at + 1 < length ? items[loop.index + 1] : undefined("no next item");
  return undefined(cat("loop.", excerpt(name), " is not supported"));
}

// Methods of dict that transformers' sandbox forbids. `dict.name` means the method and not the key
// of this name, as for supported methods.
constexpr std::string_view kChangingMethods[] = {"clear",   "fromkeys",   "pop",
                                                 "popitem", "setdefault", "update"};

Value method_of(const Value& value, std::string_view name) {
  const std::vector<Builtin>* methods = value.text() != nullptr      ? &text_methods()
                                        : value.members() != nullptr ? &dict_methods()
                                                                     : nullptr;
  if (methods == nullptr) {
    return undefined(
        cat("a value of type ", value.type(), " has no attribute '", excerpt(name), "'"));
  }
  if (const Builtin* found = find_builtin(*methods, name)) {
    return method(std::string(name), *found, value);
  }
  return undefined(cat("this ", value.type(), " has no '", excerpt(name),
                       "'; its supported methods are ", names_of(*methods)));
}

std::string_view character(std::string_view text, int64_t index) {
  const size_t begin = offset(text, index);
  return text.substr(begin, offset(text.substr(begin), 1));
}

struct Bounds {
  int64_t begin, end, step;
};

// Returns the bounds of a slice, like Python's slice.indices(length).
Bounds slice_bounds(Run& run, int64_t length, const Value& begin, const Value& end,
                    const Value& step) {
  const auto index = [&run](const Value& value, int64_t fallback) {
    if (value.is<None>()) return fallback;
    if (!value.is_integer()) run.fail(cat("a slice needs integers, found ", value.type()));
    return value.integer();
  };
  const int64_t by = index(step, 1);
  if (by == 0) run.fail("the step of a slice is zero");
  const int64_t least = by < 0 ? -1 : 0;
  const int64_t most = by < 0 ? length - 1 : length;
  const auto placed = [&](const Value& value, int64_t fallback) {
    if (value.is<None>()) return fallback;
    const int64_t at = index(value, 0);
    return std::clamp(at < 0 ? at + length : at, least, most);
  };
  return {placed(begin, by < 0 ? most : least), placed(end, by < 0 ? least : most), by};
}

void append_repr(Run& run, const Value& value, std::string& out) {
  const Run::Nested nested(run);
  run.spend_steps(1);
  const auto append_all = [&](char open, const auto& items, char close, const auto& append_one) {
    out += open;
    for (const auto& one : items) {
      if (&one != &*items.begin()) run.append(", ", out);
      append_one(one);
    }
    out += close;
  };
  if (const Text* text = value.as<Text>()) {
    const std::string quoted = repr(*text->bytes);
    return run.append(text->is_safe ? cat("Markup(", quoted, ")") : quoted, out);
  }
  if (is_list(value)) {
    const Sequence& sequence = *value.as<Sequence>();
    const bool is_tuple = sequence.form == SequenceForm::kTuple;
    append_all(is_tuple ? '(' : '[', *sequence.items, is_tuple ? ',' : ']',
               [&](const Value& one) { append_repr(run, one, out); });
    if (!is_tuple) return;
    if (sequence.items->size() != 1) out.pop_back();
    out += ')';
  } else if (value.members() != nullptr) {
    append_all('{', *value.members(), '}', [&](const auto& member) {
      append_repr(run, member.first, out);
      run.append(": ", out);
      append_repr(run, member.second, out);
    });
  } else if (value.is<None>()) {
    run.append("None", out);
  } else if (value.is<bool>()) {
    run.append(value.is_true() ? "True" : "False", out);
  } else if (value.is_integer()) {
    run.append(std::to_string(value.integer()), out);
  } else if (value.is_number()) {
    run.append(repr(value.real()), out);
  } else if (!value.is<Undefined>()) {
    run.fail(cat("a value of type ", value.type(), " cannot be printed",
                 value.is<Sequence>() ? "; make it a list with | list" : ""));
  } else {
    run.append("Undefined", out);
  }
}

}  // namespace

void require_defined(Run& run, const Value& value) {
  const auto* undefined = value.as<Undefined>();
  if (undefined != nullptr)
    run.fail(undefined->reason ? *undefined->reason : "a value is undefined");
}

bool is_list(const Value& value) {
  const auto* sequence = value.as<Sequence>();
  return sequence != nullptr && sequence->form <= SequenceForm::kTuple;
}

bool compare(Run& run, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual: return equals(run, a, b);
    case Operator::kNotEqual: return !equals(run, a, b);
    case Operator::kLess: return is_less(run, a, b);
    case Operator::kLessEqual: return is_less(run, a, b) || equals(run, a, b);
    case Operator::kGreater: return is_less(run, b, a);
    case Operator::kGreaterEqual: return is_less(run, b, a) || equals(run, a, b);
    case Operator::kIn: return is_in(run, a, b);
    default: return !is_in(run, a, b);
  }
}

Value attribute(Run& run, const Value& value, std::string_view name) {
  require_defined(run, value);
  if (const Dict* members = value.members()) {
    run.spend_steps(1 + std::ssize(*members) / 16);
    const bool is_hidden = std::ranges::find(kChangingMethods, name) != std::end(kChangingMethods);
    const bool is_method = is_hidden || find_builtin(dict_methods(), name) != nullptr;
    const Value* found = is_method ? nullptr : find(*members, name);
    return found != nullptr ? *found : method_of(value, name);
  }
  if (const Namespace* space = value.space()) {
    const auto found = space->members.find(std::string(name));
    if (found != space->members.end()) return found->second;
    return undefined(cat("the namespace has no '", excerpt(name), "'"));
  }
  if (const auto* loop = value.as<std::shared_ptr<const Loop>>()) {
    return loop_attribute(**loop, name);
  }
  return method_of(value, name);
}

Value item(Run& run, const Value& value, const Value& key) {
  require_defined(run, value);
  if (const Dict* members = value.members()) {
    const Value* found = find_key(run, *members, key);
    if (found != nullptr) return *found;
  } else if (key.is_integer() && (value.text() != nullptr || is_indexed(value))) {
    const int64_t length = length_of(run, value);
    const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index < 0 || index >= length) {
      return undefined(
          cat("no item ", key.integer(), " in a ", value.type(), " of length ", length));
    }
    if (value.text() == nullptr) return (*value.as<Sequence>()->items)[static_cast<size_t>(index)];
    return run.text(character(*value.text(), index));
  }
  if (key.text() != nullptr) {
    return value.members() != nullptr ? method_of(value, *key.text())
                                      : attribute(run, value, *key.text());
  }
  return undefined(cat("this ", value.type(), " has no such item"));
}

Value slice(Run& run, const Value& value, const Value& begin, const Value& end, const Value& step) {
  require_defined(run, value);
  if (value.text() == nullptr && !is_indexed(value)) {
    run.fail(cat("cannot slice a value of type ", value.type()));
  }
  const int64_t length = length_of(run, value);
  const Bounds bounds = slice_bounds(run, length, begin, end, step);
  if (value.text() != nullptr && bounds.step == 1) {
    const std::string_view text = *value.text();
    const size_t first = offset(text, bounds.begin);
    const int64_t count = std::max<int64_t>(bounds.end - bounds.begin, 0);
    return run.text(text.substr(first, offset(text.substr(first), count)));
  }
  const Sequence all = iterate(run, value);
  List chosen;
  for (int64_t at = bounds.begin; bounds.step < 0 ? at > bounds.end : at < bounds.end;) {
    chosen.push_back((*all.items)[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, bounds.step, &at)) break;
  }
  if (value.text() == nullptr) return run.list(std::move(chosen), all.form);
  std::string text;
  for (const Value& one : chosen) run.append(*one.text(), text);
  return text;
}

Sequence iterate(Run& run, const Value& value) {
  List items;
  if (const auto* sequence = value.as<Sequence>()) {
    run.spend_steps(std::ssize(*sequence->items) / 16);
    if (sequence->form != SequenceForm::kStream) return *sequence;
    std::swap(items, *sequence->items);
  } else if (const Dict* members = value.members()) {
    for (const auto& [key, member] : *members) items.push_back(key);
  } else if (const std::string* text = value.text()) {
    // about 100 bytes per character: a value and a string
    run.spend_bytes(std::ssize(*text) * 100);
    for (std::string_view rest = *text; !rest.empty(); rest.remove_prefix(offset(rest, 1))) {
      items.emplace_back(rest.substr(0, offset(rest, 1)));
    }
  } else if (!value.is<Undefined>()) {
    run.fail(cat("cannot iterate over a value of type ", value.type()));
  }
  run.spend_steps(std::ssize(items));
  const Value list = run.list(std::move(items));
  return *list.as<Sequence>();
}

int64_t length_of(Run& run, const Value& value) {
  if (const std::string* text = value.text()) {
    run.spend_steps(std::ssize(*text) / 64);
    return length(*text);
  }
  const auto* sequence = value.as<Sequence>();
  if (sequence != nullptr && sequence->form != SequenceForm::kStream) {
    return std::ssize(*sequence->items);
  }
  if (value.members() != nullptr) return std::ssize(*value.members());
  if (value.is<Undefined>()) return 0;
  run.fail(cat("a value of type ", value.type(), " has no length",
               sequence != nullptr ? "; make it a list with | list" : ""));
}

void append_str(Run& run, const Value& value, std::string& out) {
  if (value.is<Undefined>()) return;
  if (value.text() != nullptr) return run.append(*value.text(), out);
  append_repr(run, value, out);
}

std::string str(Run& run, const Value& value) {
  std::string out;
  append_str(run, value, out);
  return out;
}

std::string cased(Run& run, std::string_view text, Case to) {
  run.spend_bytes(std::ssize(text));
  std::optional<std::string> out = with_case(text, to);
  if (!out) {
    run.fail("changing case is supported only for ASCII letters, found others");
  }
  return std::move(*out);
}

}  // namespace shale::jinja
