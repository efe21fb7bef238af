#include <algorithm>
#include <cmath>
#include <utility>

#include "shale/base/parse.h"
#include "shale/base/text.h"
#include "shale/runtime/data/jinja/builtins.h"
#include "shale/runtime/data/jinja/operations.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale::jinja {
namespace {

const Value& argument(const Arguments& given, size_t i) {
  return given.positional[i];
}

int64_t integer_or(Run& run, const Value& value, int64_t fallback) {
  if (value.is<Undefined>()) return fallback;
  if (!value.is_integer()) run.fail(cat("expected an integer, found ", value.type()));
  return value.integer();
}

// Returns a text value. It is marked as safe (not to be escaped) if `model` is, like Python's
// Markup.
Value text_like(const Value& model, std::string text) {
  const Text* old = model.as<Text>();
  return Text{std::make_shared<const std::string>(std::move(text)), old != nullptr && old->is_safe};
}

// Returns the attribute "a.b", or the item at an index, for filters with an attribute argument.
Value attribute_at(Run& run, Value value, const Value& path) {
  if (path.text() == nullptr) return item(run, value, path);
  for (const std::string_view part : split(*path.text(), ".", -1)) {
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto index = is_index ? parse_int(part) : std::nullopt;
    value = item(run, value, index ? Value(*index) : Value(part));
  }
  return value;
}

// Returns the key by which sort, unique and dictsort compare a value.
Value sort_key(Run& run, const Value& value, const Value& path, bool case_sensitive) {
  const Value key =
      path.is<Undefined>() || path.is<None>() ? value : attribute_at(run, value, path);
  return case_sensitive || key.text() == nullptr ? key
                                                 : Value(cased(run, *key.text(), Case::kLower));
}

// Returns the values of (key, value) pairs in the order of the keys.
List sorted(Run& run, Dict keyed, bool descending) {
  const auto is_before = [&](const auto& a, const auto& b) {
    return descending ? compare(run, Operator::kLess, b.first, a.first)
                      : compare(run, Operator::kLess, a.first, b.first);
  };
  std::ranges::stable_sort(keyed, is_before);
  List values;
  for (auto& [key, value] : keyed) values.push_back(std::move(value));
  return values;
}

Value do_sort(Run& run, const Value& self, const Arguments& given) {
  Dict keyed;
  const Sequence sequence = iterate(run, self);
  for (const Value& one : *sequence.items) {
    keyed.emplace_back(sort_key(run, one, argument(given, 2), argument(given, 1).is_true()), one);
  }
  return run.list(sorted(run, std::move(keyed), argument(given, 0).is_true()));
}

Value do_dictsort(Run& run, const Value& self, const Arguments& given) {
  const Dict* members = self.members();
  if (members == nullptr) run.fail(cat("dictsort needs a dict, found ", self.type()));
  const std::string by = argument(given, 1).is<Undefined>() ? "key" : str(run, argument(given, 1));
  if (by != "key" && by != "value") run.fail("dictsort sorts by 'key' or 'value'");
  Dict keyed;
  for (const auto& [key, value] : *members) {
    keyed.emplace_back(sort_key(run, by == "key" ? key : value, {}, argument(given, 0).is_true()),
                       run.list({key, value}, SequenceForm::kTuple));
  }
  return run.list(sorted(run, std::move(keyed), argument(given, 2).is_true()));
}

Value do_unique(Run& run, const Value& self, const Arguments& given) {
  List seen, chosen;
  const Sequence sequence = iterate(run, self);
  for (const Value& one : *sequence.items) {
    const Value key = sort_key(run, one, argument(given, 1), argument(given, 0).is_true());
    const auto is_key = [&](const Value& old) { return compare(run, Operator::kEqual, old, key); };
    if (std::ranges::any_of(seen, is_key)) continue;
    seen.push_back(key);
    chosen.push_back(one);
  }
  return run.list(std::move(chosen), SequenceForm::kStream);
}

Value do_items(Run& run, const Value& self, const Arguments&) {
  if (self.is<Undefined>()) return run.list({}, SequenceForm::kStream);
  if (self.members() == nullptr) run.fail(cat("items needs a dict, found ", self.type()));
  List pairs;
  for (const auto& [key, value] : *self.members()) {
    pairs.push_back(run.list({key, value}, SequenceForm::kTuple));
  }
  return run.list(std::move(pairs), SequenceForm::kStream);
}

Value do_join(Run& run, const Value& self, const Arguments& given) {
  std::string out;
  const std::string separator = str(run, argument(given, 0));
  const Sequence sequence = iterate(run, self);
  for (const Value& one : *sequence.items) {
    if (&one != &sequence.items->front()) run.append(separator, out);
    const Value& path = argument(given, 1);
    append_str(run, path.is<Undefined>() ? one : attribute_at(run, one, path), out);
  }
  return out;
}

// Returns an indent as a text. It is given as a text or as a number of spaces.
std::string indent_of(Run& run, const Value& indent, int64_t fallback) {
  if (indent.text() != nullptr) return *indent.text();
  const int64_t spaces = std::max<int64_t>(integer_or(run, indent, fallback), 0);
  run.spend_bytes(spaces);
  return std::string(static_cast<size_t>(spaces), ' ');
}

Value do_indent(Run& run, const Value& self, const Arguments& given) {
  const std::string indent = indent_of(run, argument(given, 0), 4);
  std::string out;
  if (self.text() == nullptr) run.fail(cat("indent needs a string, found ", self.type()));
  std::string text = *self.text();
  text += '\n';  // an empty last line counts as a line
  bool is_first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!is_first) run.append("\n", out);
    const bool indents_blank = argument(given, 2).is_true();
    const bool indents = is_first ? argument(given, 1).is_true() : !line.empty() || indents_blank;
    if (indents) run.append(indent, out);
    run.append(line, out);
    is_first = false;
  }
  return text_like(self, std::move(out));
}

Value do_replace(Run& run, const Value& self, const Arguments& given) {
  Arguments method{{str(run, argument(given, 0)), str(run, argument(given, 1)), argument(given, 2)},
                   {}};
  if (method.positional[2].is<None>()) method.positional[2] = Value();
  return find_builtin(text_methods(), "replace")->call(run, str(run, self), method);
}

Value do_int(Run& run, const Value& self, const Arguments& given) {
  const Value fallback =
      argument(given, 0).is<Undefined>() ? Value(int64_t{0}) : argument(given, 0);
  if (integer_or(run, argument(given, 1), 10) != 10) run.fail("int with a base is not supported");
  if (self.is<Undefined>()) return negative(run, self);  // throws, because the value is undefined
  if (self.is_integer()) return self.integer();
  std::optional<double> real;
  if (const std::string* text = self.text()) {
    const std::string_view digits = strip(*text, Side::kBoth);
    if (const auto integer = parse_int(digits)) return *integer;
    real = parse_real(digits);
  } else if (self.is<double>()) {
    real = self.real();
  }
  if (!real) return fallback;
  if (!(std::abs(*real) < 9e18)) run.fail("int: the number is too large");
  return static_cast<int64_t>(*real);
}

Value do_float(Run& run, const Value& self, const Arguments& given) {
  if (self.is<Undefined>()) return negative(run, self);  // throws, because the value is undefined
  if (self.is_number()) return self.real();
  const std::string* text = self.text();
  const auto real = text != nullptr ? parse_real(strip(*text, Side::kBoth)) : std::nullopt;
  if (real) return *real;
  return argument(given, 0).is<Undefined>() ? Value(0.0) : argument(given, 0);
}

Value do_abs(Run& run, const Value& self, const Arguments&) {
  if (self.is_integer() && self.integer() >= 0) return self.integer();
  return self.is<double>() && !std::signbit(self.real()) ? self : negative(run, self);
}

Value do_batch(Run& run, const Value& self, const Arguments& given) {
  const int64_t count = integer_or(run, argument(given, 0), 0);
  if (count < 1) run.fail("batch needs a count of at least 1");
  const Value& filler = argument(given, 1);
  const bool fills = !filler.is<Undefined>() && !filler.is<None>();
  List batches, batch;
  const Sequence sequence = iterate(run, self);
  for (const Value& one : *sequence.items) {
    batch.push_back(one);
    if (std::ssize(batch) == count) batches.push_back(run.list(std::exchange(batch, {})));
  }
  if (!batch.empty()) {
    if (fills) {
      run.spend_bytes(count);
      run.spend_bytes(count * static_cast<int64_t>(sizeof(Value)));
      batch.resize(static_cast<size_t>(count), filler);
    }
    batches.push_back(run.list(std::move(batch)));
  }
  return run.list(std::move(batches), SequenceForm::kStream);
}

Value do_tojson(Run& run, const Value& self, const Arguments& given) {
  JsonStyle style;
  style.ensure_ascii = argument(given, 0).is_true();
  const Value& indent = argument(given, 1);
  if (!indent.is<Undefined>() && !indent.is<None>()) {
    style.breaks_lines = true;
    // removes the space after the comma, because with an indent it would end the line
    style.item_separator.pop_back();
    style.indent = indent_of(run, indent, 0);
  }
  const Value& separators = argument(given, 2);
  if (!separators.is<Undefined>() && !separators.is<None>()) {
    const Sequence pair = iterate(run, separators);
    if (pair.items->size() != 2) run.fail("tojson needs two separators");
    style.item_separator = str(run, pair.items->front());
    style.key_separator = str(run, pair.items->back());
  }
  style.sort_keys = argument(given, 3).is_true();
  return to_json(run, self, style);
}

Value edge(Run& run, const Value& self, bool is_first) {
  const auto* sequence = self.as<Sequence>();
  if (sequence != nullptr && sequence->form == SequenceForm::kStream) {
    if (!is_first) run.fail("last needs a list; use | list before it");
    if (sequence->items->empty()) return Undefined();
    const Value first = sequence->items->front();
    run.spend_steps(std::ssize(*sequence->items));
    sequence->items->erase(sequence->items->begin());
    return first;
  }
  const Sequence all = iterate(run, self);
  if (all.items->empty()) return Undefined();
  return is_first ? all.items->front() : all.items->back();
}

Value do_format(Run& run, const Value& self, const Arguments& given) {
  if (!given.named.empty()) run.fail("format takes values without names");
  return format(run, str(run, self), given.positional);
}

Value do_reverse(Run& run, const Value& self, const Arguments&) {
  if (self.text() != nullptr) return slice(run, self, None(), None(), int64_t{-1});
  const Sequence sequence = iterate(run, self);
  List items(sequence.items->rbegin(), sequence.items->rend());
  return run.list(std::move(items), SequenceForm::kStream);
}

// Returns the arguments that follow argument `at`, which is the name of a filter or test.
Arguments behind(const Arguments& given, size_t at) {
  Arguments rest{{}, given.named};
  const auto begin = given.positional.begin() + static_cast<std::ptrdiff_t>(at) + 1;
  rest.positional.assign(begin, given.positional.end());
  return rest;
}

const Builtin& named(Run& run, const std::vector<Builtin>& table, const Value& name,
                     std::string_view kind) {
  const Builtin* found = name.text() != nullptr ? find_builtin(table, *name.text()) : nullptr;
  if (found != nullptr) return *found;
  run.fail(cat(kind, " '", excerpt(str(run, name)), "' is not supported; supported are ",
               names_of(table)));
}

Value do_map(Run& run, const Value& self, const Arguments& given) {
  if (!self.is_true()) return run.list({}, SequenceForm::kStream);
  List results;
  const Sequence sequence = iterate(run, self);
  if (!given.positional.empty()) {
    const Builtin& filter = named(run, filters(), given.positional[0], "filter");
    const Arguments rest = behind(given, 0);
    for (const Value& one : *sequence.items)
      results.push_back(call_builtin(run, filter, one, rest));
    return run.list(std::move(results), SequenceForm::kStream);
  }
  Value path, fallback;
  for (const auto& [name, value] : given.named) {
    if (name != "attribute" && name != "default") run.fail(cat("map has no argument '", name, "'"));
    (name == "attribute" ? path : fallback) = value;
  }
  if (path.is<Undefined>()) run.fail("map needs a filter or an attribute");
  for (const Value& one : *sequence.items) {
    Value result = attribute_at(run, one, path);
    results.push_back(result.is<Undefined>() && !fallback.is<None>() ? fallback : result);
  }
  return run.list(std::move(results), SequenceForm::kStream);
}

// Implements select, reject, selectattr and rejectattr.
template <bool kSelects, bool kOfAttribute>
Value do_select(Run& run, const Value& self, const Arguments& given) {
  constexpr size_t kTest = kOfAttribute ? 1 : 0;
  if (!self.is_true()) return run.list({}, SequenceForm::kStream);
  if (given.positional.size() < kTest) run.fail("expected the name of an attribute");
  const bool has_test = given.positional.size() > kTest;
  const Builtin* test = has_test ? &named(run, tests(), given.positional[kTest], "test") : nullptr;
  const Arguments rest = has_test ? behind(given, kTest) : Arguments();
  List chosen;
  const Sequence sequence = iterate(run, self);
  for (const Value& one : *sequence.items) {
    const Value tested = kOfAttribute ? attribute_at(run, one, given.positional[0]) : one;
    const Value result = has_test ? call_builtin(run, *test, tested, rest) : tested;
    if (result.is_true() == kSelects) chosen.push_back(one);
  }
  return run.list(std::move(chosen), SequenceForm::kStream);
}

template <Case kTo>
Value do_case(Run& run, const Value& self, const Arguments&) {
  return text_like(self, cased(run, str(run, self), kTo));
}

Value do_count(Run& run, const Value& self, const Arguments&) {
  return length_of(run, self);
}

Value do_default(Run&, const Value& self, const Arguments& given) {
  const bool applies = self.is<Undefined>() || (argument(given, 1).is_true() && !self.is_true());
  if (!applies) return self;
  return argument(given, 0).is<Undefined>() ? Value("") : argument(given, 0);
}

Value do_list(Run& run, const Value& self, const Arguments&) {
  return run.list(*iterate(run, self).items);
}

Value do_safe(Run& run, const Value& self, const Arguments&) {
  return Text{std::make_shared<const std::string>(str(run, self)), true};
}

Value do_string(Run& run, const Value& self, const Arguments&) {
  return text_like(self, str(run, self));
}

Value do_trim(Run& run, const Value& self, const Arguments& given) {
  return find_builtin(text_methods(), "strip")->call(run, do_string(run, self, {}), given);
}

Value do_first(Run& run, const Value& self, const Arguments&) {
  return edge(run, self, true);
}
Value do_last(Run& run, const Value& self, const Arguments&) {
  return edge(run, self, false);
}

}  // namespace

const std::vector<Builtin>& filters() {
  static const std::vector<Builtin> table = {
      {"abs", {}, 0, do_abs},
      {"batch", {"linecount", "fill_with"}, 1, do_batch},
      {"capitalize", {}, 0, do_case<Case::kCapital>},
      {"count", {}, 0, do_count},
      {"d", {"default_value", "boolean"}, 0, do_default},
      {"default", {"default_value", "boolean"}, 0, do_default},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, do_dictsort},
      {"first", {}, 0, do_first},
      {"float", {"default"}, 0, do_float},
      {"format", {}, 0, do_format, true},
      {"indent", {"width", "first", "blank"}, 0, do_indent},
      {"int", {"default", "base"}, 0, do_int},
      {"items", {}, 0, do_items},
      {"join", {"d", "attribute"}, 0, do_join},
      {"last", {}, 0, do_last},
      {"length", {}, 0, do_count},
      {"list", {}, 0, do_list},
      {"lower", {}, 0, do_case<Case::kLower>},
      {"map", {}, 0, do_map, true},
      {"reject", {}, 0, do_select<false, false>, true},
      {"rejectattr", {}, 0, do_select<false, true>, true},
      {"replace", {"old", "new", "count"}, 2, do_replace},
      {"reverse", {}, 0, do_reverse},
      {"safe", {}, 0, do_safe},
      {"select", {}, 0, do_select<true, false>, true},
      {"selectattr", {}, 0, do_select<true, true>, true},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, do_sort},
      {"string", {}, 0, do_string},
      {"title", {}, 0, do_case<Case::kTitleWords>},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, do_tojson},
      {"trim", {"chars"}, 0, do_trim},
      {"unique", {"case_sensitive", "attribute"}, 0, do_unique},
      {"upper", {}, 0, do_case<Case::kUpper>},
  };
  return table;
}

}  // namespace shale::jinja
