#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "shale/base/parse.h"
#include "shale/base/text.h"
#include "shale/runtime/data/jinja/builtins.h"
#include "shale/runtime/data/jinja/operations.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale::jinja {
namespace {

// ---- String methods ----

bool is_absent(const Value& value) {
  return value.is<Undefined>() || value.is<None>();
}

const std::string& text_of(Run& run, const Value& value) {
  if (value.text() == nullptr) run.fail(cat("expected a string, found ", value.type()));
  return *value.text();
}

const std::string& text_argument(Run& run, const Arguments& given, size_t i) {
  return text_of(run, given.positional[i]);
}

int64_t count_argument(Run& run, const Arguments& given, size_t i) {
  const Value& value = given.positional[i];
  if (value.is<Undefined>()) return -1;
  if (!value.is_integer()) run.fail(cat("expected an integer, found ", value.type()));
  return value.integer();
}

// Returns `text` as a value. It is marked as safe (not to be escaped) if `self` is.
Value made_of(Run& run, const Value& self, std::string_view text) {
  run.spend_bytes(std::ssize(text));
  return Text{std::make_shared<const std::string>(text), self.as<Text>()->is_safe};
}

template <Side kSide>
Value do_strip(Run& run, const Value& self, const Arguments& given) {
  const std::string& text = *self.text();
  if (is_absent(given.positional[0])) return made_of(run, self, strip(text, kSide));
  const std::string& characters = text_argument(run, given, 0);
  run.spend_steps(std::ssize(text) / 64 * (1 + std::ssize(characters) / 16));
  return made_of(run, self, strip(text, kSide, characters));
}

template <Case kTo>
Value do_case(Run& run, const Value& self, const Arguments&) {
  return made_of(run, self, cased(run, *self.text(), kTo));
}

Value texts(Run& run, const Value& self, const std::vector<std::string_view>& parts) {
  run.spend_steps(std::ssize(parts));
  run.spend_bytes(std::ssize(parts) * 64);
  List list;
  for (const std::string_view part : parts) list.push_back(made_of(run, self, part));
  return run.list(std::move(list));
}

template <bool kFromRight>
Value do_split(Run& run, const Value& self, const Arguments& given) {
  const std::string& text = *self.text();
  const int64_t cuts = count_argument(run, given, 1);
  run.spend_steps(1 + std::ssize(text) / 64);
  if (is_absent(given.positional[0])) {
    if (kFromRight && cuts >= 0) run.fail("rsplit without a separator takes no maximum");
    return texts(run, self, split(text, {}, cuts));
  }
  const std::string& separator = text_argument(run, given, 0);
  if (separator.empty()) run.fail("the separator of split is empty");
  if (!kFromRight || cuts < 0) return texts(run, self, split(text, separator, cuts));
  run.spend_steps(std::ssize(text) / 64 * std::ssize(separator));
  return texts(run, self, split_from_right(text, separator, cuts));
}

Value do_split_lines(Run& run, const Value& self, const Arguments&) {
  return texts(run, self, split_lines(*self.text()));
}

// Implements startswith (kStarts) and endswith, with an argument that is a string or a tuple of
// strings.
template <bool kStarts>
Value do_has_edge(Run& run, const Value& self, const Arguments& given) {
  const auto has = [&](const Value& edge) {
    const std::string& text = text_of(run, edge);
    return kStarts ? self.text()->starts_with(text) : self.text()->ends_with(text);
  };
  const auto* options = given.positional[0].as<Sequence>();
  return options == nullptr ? has(given.positional[0]) : std::ranges::any_of(*options->items, has);
}

template <bool kStarts>
Value do_remove_edge(Run& run, const Value& self, const Arguments& given) {
  std::string_view text = *self.text();
  const std::string& edge = text_argument(run, given, 0);
  if (kStarts && text.starts_with(edge)) text.remove_prefix(edge.size());
  if (!kStarts && text.ends_with(edge)) text.remove_suffix(edge.size());
  return made_of(run, self, text);
}

Value do_replace(Run& run, const Value& self, const Arguments& given) {
  std::string_view text = *self.text();
  const std::string& old = text_argument(run, given, 0);
  const std::string& fresh = text_argument(run, given, 1);
  std::string out;
  run.spend_steps(1 + std::ssize(text) / 64);
  for (int64_t left = count_argument(run, given, 2); left != 0; --left) {
    // An empty `old` matches before each character and at the end.
    const size_t at = old.empty() ? 0 : find_text(text, old);
    if (at == text.npos) break;
    run.spend_steps(1);
    run.append(text.substr(0, at), out);
    run.append(fresh, out);
    const size_t next = old.empty() ? offset(text, 1) : at + old.size();
    if (old.empty()) run.append(text.substr(0, next), out);
    text.remove_prefix(next);
    if (old.empty() && next == 0) break;
  }
  run.append(text, out);
  return made_of(run, self, out);
}

Value do_find(Run& run, const Value& self, const Arguments& given) {
  run.spend_steps(1 + std::ssize(*self.text()) / 64);
  const size_t at = find_text(*self.text(), text_argument(run, given, 0));
  return at == std::string::npos ? int64_t{-1}
                                 : length(std::string_view(*self.text()).substr(0, at));
}

Value do_count(Run& run, const Value& self, const Arguments& given) {
  const std::string& part = text_argument(run, given, 0);
  run.spend_steps(1 + std::ssize(*self.text()) / 64);
  if (part.empty()) return length(*self.text()) + 1;
  return static_cast<int64_t>(split(*self.text(), part, -1).size()) - 1;
}

Value do_join(Run& run, const Value& self, const Arguments& given) {
  const Sequence sequence = iterate(run, given.positional[0]);
  std::string out;
  for (const Value& one : *sequence.items) {
    if (&one != &sequence.items->front()) run.append(*self.text(), out);
    run.append(text_of(run, one), out);
  }
  return made_of(run, self, out);
}

// ---- Dict methods ----

Value do_get(Run& run, const Value& self, const Arguments& given) {
  if (compare(run, Operator::kIn, given.positional[0], self)) {
    return item(run, self, given.positional[0]);
  }
  return given.positional[1].is<Undefined>() ? Value(None()) : given.positional[1];
}

Value do_items(Run& run, const Value& self, const Arguments&) {
  List pairs;
  for (const auto& [key, value] : *self.members()) {
    pairs.push_back(run.list({key, value}, SequenceForm::kTuple));
  }
  return run.list(std::move(pairs), SequenceForm::kView);
}

template <bool kKeys>
Value do_parts(Run& run, const Value& self, const Arguments&) {
  List parts;
  for (const auto& [key, value] : *self.members()) parts.push_back(kKeys ? key : value);
  return run.list(std::move(parts), SequenceForm::kView);
}

Value do_copy(Run&, const Value& self, const Arguments&) {
  return self;
}

// ---- Functions ----

Value do_range(Run& run, const Value&, const Arguments& given) {
  std::array<int64_t, 3> numbers{};
  const size_t count = given.positional.size();
  if (count == 0 || count > 3 || !given.named.empty())
    run.fail("range needs one to three integers");
  for (size_t i = 0; i < count; ++i) {
    const Value& value = given.positional[i];
    if (!value.is_integer()) run.fail(cat("range needs integers, found ", value.type()));
    numbers[i] = value.integer();
  }
  const auto [begin, end] =
      count == 1 ? std::pair(int64_t{0}, numbers[0]) : std::pair(numbers[0], numbers[1]);
  const int64_t step = count == 3 ? numbers[2] : 1;
  if (step == 0) run.fail("the step of range is zero");
  List items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() == 100'000) run.fail("range has more than 100000 numbers");
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  run.spend_steps(std::ssize(items));
  return run.list(std::move(items), SequenceForm::kRange);
}

Dict members_of(Run& run, const Arguments& given, std::string_view name) {
  if (given.positional.size() > 1) run.fail(cat(name, " takes one dict, and members by name"));
  Dict members;
  if (!given.positional.empty()) {
    if (given.positional[0].members() == nullptr) run.fail(cat(name, " needs a dict"));
    members = *given.positional[0].members();
  }
  for (const auto& [key, value] : given.named) {
    const auto same = std::ranges::find_if(members, [&key = key](const auto& member) {
      return member.first.text() != nullptr && *member.first.text() == key;
    });
    if (same != members.end()) {
      same->second = value;
    } else {
      members.emplace_back(key, value);
    }
  }
  return members;
}

Value do_dict(Run& run, const Value&, const Arguments& given) {
  return run.dict(members_of(run, given, "dict"));
}

Value do_namespace(Run& run, const Value&, const Arguments& given) {
  Namespace* space = run.make_namespace();
  for (const auto& [name, value] : members_of(run, given, "namespace")) {
    space->members[text_of(run, name)] = value;
  }
  return space;
}

Value do_raise(Run& run, const Value&, const Arguments& given) {
  run.fail(cat("the template says: ", excerpt(str(run, given.positional[0]), 400)));
}

Value do_strftime_now(Run& run, const Value&, const Arguments& given) {
  const std::string& format = text_argument(run, given, 0);
  const std::time_t now = run.options().now.value_or(std::time(nullptr));
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 256> buffer{};
  if (format.empty()) return "";
  const size_t bytes = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  if (bytes == 0)
    run.fail("strftime_now needs a date and time format, for a text of 1 to 255 bytes");
  return run.text({buffer.data(), bytes});
}

}  // namespace

const std::vector<Builtin>& text_methods() {
  static const std::vector<Builtin> table = {
      {"capitalize", {}, 0, do_case<Case::kCapital>},
      {"count", {"sub"}, 1, do_count},
      {"endswith", {"suffix"}, 1, do_has_edge<false>},
      {"find", {"sub"}, 1, do_find},
      {"join", {"iterable"}, 1, do_join},
      {"lower", {}, 0, do_case<Case::kLower>},
      {"lstrip", {"chars"}, 0, do_strip<Side::kLeft>},
      {"removeprefix", {"prefix"}, 1, do_remove_edge<true>},
      {"removesuffix", {"suffix"}, 1, do_remove_edge<false>},
      {"replace", {"old", "new", "count"}, 2, do_replace},
      {"rsplit", {"sep", "maxsplit"}, 0, do_split<true>},
      {"rstrip", {"chars"}, 0, do_strip<Side::kRight>},
      {"split", {"sep", "maxsplit"}, 0, do_split<false>},
      {"splitlines", {}, 0, do_split_lines},
      {"startswith", {"prefix"}, 1, do_has_edge<true>},
      {"strip", {"chars"}, 0, do_strip<Side::kBoth>},
      {"title", {}, 0, do_case<Case::kTitle>},
      {"upper", {}, 0, do_case<Case::kUpper>},
  };
  return table;
}

const std::vector<Builtin>& dict_methods() {
  static const std::vector<Builtin> table = {
      {"copy", {}, 0, do_copy},           {"get", {"key", "default"}, 1, do_get},
      {"items", {}, 0, do_items},         {"keys", {}, 0, do_parts<true>},
      {"values", {}, 0, do_parts<false>},
  };
  return table;
}

const std::vector<Builtin>& functions() {
  static const std::vector<Builtin> table = {
      {"dict", {}, 0, do_dict, true},
      {"namespace", {}, 0, do_namespace, true},
      {"raise_exception", {"message"}, 1, do_raise},
      {"range", {}, 0, do_range, true},
      {"strftime_now", {"format"}, 1, do_strftime_now},
  };
  return table;
}

}  // namespace shale::jinja
