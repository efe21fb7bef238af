#include "shale/runtime/data/jinja/builtins.h"
#include "shale/runtime/data/jinja/operations.h"

namespace shale::jinja {
namespace {

template <typename T>
Value is_a(Run&, const Value& self, const Arguments&) {
  return self.is<T>();
}

template <Operator kOp>
Value compares(Run& run, const Value& self, const Arguments& given) {
  return compare(run, kOp, self, given.positional[0]);
}

template <bool kValue>
Value is_boolean(Run&, const Value& self, const Arguments&) {
  return self.is<bool>() && self.is_true() == kValue;
}

int64_t rest(Run& run, const Value& self, const Value& divisor) {
  const Value value = arithmetic(run, Operator::kModulo, self, divisor);
  return value.is_integer() ? value.integer() : value.real() == 0 ? 0 : value.real() == 1 ? 1 : -1;
}

template <int64_t kRest>
Value is_parity(Run& run, const Value& self, const Arguments&) {
  return rest(run, self, int64_t{2}) == kRest;
}

Value is_divisible(Run& run, const Value& self, const Arguments& given) {
  return rest(run, self, given.positional[0]) == 0;
}

Value is_defined(Run&, const Value& self, const Arguments&) {
  return !self.is<Undefined>();
}

Value is_number(Run&, const Value& self, const Arguments&) {
  return self.is_number();
}

Value is_iterable(Run&, const Value& self, const Arguments&) {
  return self.is<Text>() || self.is<Sequence>() || self.is<Mapping>() || self.is<Undefined>();
}

Value is_sequence(Run&, const Value& self, const Arguments&) {
  const auto* sequence = self.as<Sequence>();
  if (sequence == nullptr) return self.is<Text>() || self.is<Mapping>() || self.is<Undefined>();
  return sequence->form != SequenceForm::kView && sequence->form != SequenceForm::kStream;
}

// The test `sameas`. Supports only values of which there is one instance, such as True and None.
Value is_same(Run& run, const Value& self, const Arguments& given) {
  const Value& other = given.positional[0];
  if (!other.is<bool>() && !other.is<None>()) {
    run.fail("'sameas' is supported with true, false and none");
  }
  if (other.is<None>()) return self.is<None>();
  return self.is<bool>() && self.is_true() == other.is_true();
}

}  // namespace

const std::vector<Builtin>& tests() {
  static const std::vector<Builtin> table = {
      {"boolean", {}, 0, is_a<bool>},
      {"callable", {}, 0, is_a<std::shared_ptr<const Function>>},
      {"defined", {}, 0, is_defined},
      {"divisibleby", {"num"}, 1, is_divisible},
      {"==", {"other"}, 1, compares<Operator::kEqual>},
      {"eq", {"other"}, 1, compares<Operator::kEqual>},
      {"equalto", {"other"}, 1, compares<Operator::kEqual>},
      {"even", {}, 0, is_parity<0>},
      {"false", {}, 0, is_boolean<false>},
      {"float", {}, 0, is_a<double>},
      {">=", {"other"}, 1, compares<Operator::kGreaterEqual>},
      {"ge", {"other"}, 1, compares<Operator::kGreaterEqual>},
      {">", {"other"}, 1, compares<Operator::kGreater>},
      {"greaterthan", {"other"}, 1, compares<Operator::kGreater>},
      {"gt", {"other"}, 1, compares<Operator::kGreater>},
      {"in", {"seq"}, 1, compares<Operator::kIn>},
      {"integer", {}, 0, is_a<int64_t>},
      {"iterable", {}, 0, is_iterable},
      {"<=", {"other"}, 1, compares<Operator::kLessEqual>},
      {"le", {"other"}, 1, compares<Operator::kLessEqual>},
      {"<", {"other"}, 1, compares<Operator::kLess>},
      {"lessthan", {"other"}, 1, compares<Operator::kLess>},
      {"lt", {"other"}, 1, compares<Operator::kLess>},
      {"mapping", {}, 0, is_a<Mapping>},
      {"!=", {"other"}, 1, compares<Operator::kNotEqual>},
      {"ne", {"other"}, 1, compares<Operator::kNotEqual>},
      {"none", {}, 0, is_a<None>},
      {"number", {}, 0, is_number},
      {"odd", {}, 0, is_parity<1>},
      {"sameas", {"other"}, 1, is_same},
      {"sequence", {}, 0, is_sequence},
      {"string", {}, 0, is_a<Text>},
      {"true", {}, 0, is_boolean<true>},
      {"undefined", {}, 0, is_a<Undefined>},
  };
  return table;
}

}  // namespace shale::jinja
