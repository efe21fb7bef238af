#include <algorithm>
#include <cmath>
#include <utility>

#include "shale/base/text.h"
#include "shale/runtime/data/jinja/operations.h"

namespace shale::jinja {
namespace {

std::string escape_markup(Run& run, const Text& text) {
  if (text.is_safe) return *text.bytes;
  std::string out;
  for (const char c : *text.bytes) {
    switch (c) {
      case '&': run.append("&amp;", out); break;
      case '<': run.append("&lt;", out); break;
      case '>': run.append("&gt;", out); break;
      case '\'': run.append("&#39;", out); break;
      case '"': run.append("&#34;", out); break;
      default: run.append({&c, 1}, out);
    }
  }
  return out;
}

Value add_texts(Run& run, const Text& a, const Text& b) {
  const bool is_safe = a.is_safe || b.is_safe;
  run.spend_bytes(std::ssize(*a.bytes) + std::ssize(*b.bytes));
  auto sum = is_safe ? escape_markup(run, a) + escape_markup(run, b) : *a.bytes + *b.bytes;
  return Text{std::make_shared<const std::string>(std::move(sum)), is_safe};
}

Value add_lists(Run& run, const Sequence& a, const Sequence& b) {
  run.spend_steps(std::ssize(*a.items) + std::ssize(*b.items));
  List all = *a.items;
  all.insert(all.end(), b.items->begin(), b.items->end());
  return run.list(std::move(all), a.form);
}

Value repeat(Run& run, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const std::string* text = value.text();
  const int64_t size = text != nullptr ? std::ssize(*text) : length_of(run, value);
  int64_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) total = INT64_MAX;
  if (size == 0) times = 0;
  run.spend_bytes(total);
  run.spend_steps(times);
  if (text != nullptr) {
    std::string out;
    for (; times > 0; --times) out += *text;
    return Text{std::make_shared<const std::string>(std::move(out)), value.as<Text>()->is_safe};
  }
  const Sequence& sequence = *value.as<Sequence>();
  List out;
  run.spend_bytes(total * static_cast<int64_t>(sizeof(Value)));
  for (; times > 0; --times) out.insert(out.end(), sequence.items->begin(), sequence.items->end());
  return run.list(std::move(out), sequence.form);
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_arithmetic(Run& run, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd: overflows = __builtin_add_overflow(a, b, &result); break;
    case Operator::kSubtract: overflows = __builtin_sub_overflow(a, b, &result); break;
    case Operator::kMultiply: overflows = __builtin_mul_overflow(a, b, &result); break;
    case Operator::kDivide: return static_cast<double>(a) / static_cast<double>(b);
    case Operator::kFloorDivide:
    case Operator::kModulo:
      overflows = a == INT64_MIN && b == -1;
      if (!overflows) result = floor_divide(a, b);
      if (op == Operator::kModulo) result = overflows ? 0 : a - result * b;
      break;
    case Operator::kPower:
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      result = 1;
      if (a >= -1 && a <= 1) return b == 0 || (a == -1 && b % 2 == 0) ? int64_t{1} : a;
      for (; b > 0 && !overflows; --b) overflows = __builtin_mul_overflow(result, a, &result);
      break;
    default: break;
  }
  if (overflows) run.fail("an integer is too large: integers beyond 64 bits are not supported");
  return result;
}

Value real_arithmetic(Run& run, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd: return a + b;
    case Operator::kSubtract: return a - b;
    case Operator::kMultiply: return a * b;
    case Operator::kDivide: return a / b;
    case Operator::kFloorDivide: return std::floor(a / b);
    case Operator::kModulo: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    default: break;
  }
  const double power = std::pow(a, b);
  if (std::isnan(power)) run.fail("the result of ** is not a real number");
  return power;
}

}  // namespace

Value arithmetic(Run& run, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kConcatenate) {
    std::string out;
    append_str(run, a, out);
    append_str(run, b, out);
    return out;
  }
  require_defined(run, a);
  require_defined(run, b);
  if (a.is_number() && b.is_number()) {
    const bool divides = op >= Operator::kDivide && op <= Operator::kModulo;
    const bool inverts = op == Operator::kPower && b.real() < 0;
    if ((divides && b.real() == 0) || (inverts && a.real() == 0)) run.fail("division by zero");
    if (a.is_integer() && b.is_integer()) {
      return integer_arithmetic(run, op, a.integer(), b.integer());
    }
    return real_arithmetic(run, op, a.real(), b.real());
  }
  const bool is_repeatable = a.text() != nullptr || is_list(a);
  if (op == Operator::kAdd && a.text() != nullptr && b.text() != nullptr) {
    return add_texts(run, *a.as<Text>(), *b.as<Text>());
  }
  if (op == Operator::kAdd && is_list(a) && is_list(b) && a.type() == b.type()) {
    return add_lists(run, *a.as<Sequence>(), *b.as<Sequence>());
  }
  if (op == Operator::kMultiply && is_repeatable && b.is_integer()) {
    return repeat(run, a, b.integer());
  }
  if (op == Operator::kMultiply && a.is_integer() && (b.text() != nullptr || is_list(b))) {
    return repeat(run, b, a.integer());
  }
  if (op == Operator::kModulo && a.text() != nullptr) {
    const auto* values = b.as<Sequence>();
    const bool is_tuple = values != nullptr && values->form == SequenceForm::kTuple;
    return format(run, *a.text(), is_tuple ? *values->items : List{b});
  }
  static constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  run.fail(cat("cannot compute ", a.type(), " ", kSigns[static_cast<size_t>(op)], " ", b.type()));
}

Value negative(Run& run, const Value& value) {
  require_defined(run, value);
  if (value.is<double>()) return -value.real();
  if (!value.is_integer()) run.fail(cat("cannot negate a value of type ", value.type()));
  return arithmetic(run, Operator::kSubtract, int64_t{0}, value);
}

std::string format(Run& run, std::string_view text, const List& values) {
  std::string out;
  size_t next = 0;
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%')) {
    run.append(text.substr(0, at), out);
    const char kind = at + 1 < text.size() ? text[at + 1] : '\0';
    text.remove_prefix(std::min(at + 2, text.size()));
    if (kind == '%') {
      out += '%';
    } else if (kind != 's' && kind != 'd') {
      run.fail("a format has '%' before another character than s, d or %, which is not supported");
    } else if (next == values.size()) {
      run.fail(cat("a format needs more than ", values.size(), " values"));
    } else {
      const Value& value = values[next++];
      if (kind == 'd' && !value.is_integer())
        run.fail(cat("%d needs an integer, found ", value.type()));
      append_str(run, kind == 'd' ? Value(value.integer()) : value, out);
    }
  }
  if (next != values.size())
    run.fail(cat("a format has ", values.size(), " values, expected ", next));
  run.append(text, out);
  return out;
}

}  // namespace shale::jinja
