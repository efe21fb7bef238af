#include "shale/runtime/data/jinja/expression_parser.h"

#include <array>

namespace shale::jinja {

Expression ExpressionParser::make(Kind kind, std::vector<Expression> parts) const {
  Expression made{.kind = kind, .line = token().line, .parts = std::move(parts)};
  for (const Expression& part : made.parts) made.depth = std::max(made.depth, part.depth + 1);
  check_depth(made.depth);
  return made;
}

Expression ExpressionParser::constant(Value value) const {
  Expression made = make(Kind::kConstant);
  made.constant = std::move(value);
  return made;
}

Expression ExpressionParser::expression() {
  const Nested nested(*this);
  Expression left = disjunction();
  while (skip_word("if")) {
    Expression condition = disjunction();
    left = skip_word("else")
               ? join(Kind::kConditional, std::move(left), std::move(condition), expression())
               : join(Kind::kConditional, std::move(left), std::move(condition));
  }
  return left;
}

Expression ExpressionParser::disjunction() {
  Expression left = conjunction();
  while (skip_word("or")) left = join(Kind::kOr, std::move(left), conjunction());
  return left;
}

Expression ExpressionParser::conjunction() {
  Expression left = negation();
  while (skip_word("and")) left = join(Kind::kAnd, std::move(left), negation());
  return left;
}

Expression ExpressionParser::negation() {
  const Nested nested(*this);
  return skip_word("not") ? join(Kind::kNot, negation()) : comparison();
}

Expression ExpressionParser::comparison() {
  static constexpr std::pair<const char*, Operator> kSigns[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  std::vector<Expression> operands;
  std::vector<Operator> operators;
  operands.push_back(sum());
  for (;;) {
    const auto sign = std::ranges::find_if(
        kSigns, [this](const auto& candidate) { return is_operator(candidate.first); });
    if (sign != std::end(kSigns)) {
      ++at_;
      operators.push_back(sign->second);
    } else if (skip_word("in")) {
      operators.push_back(Operator::kIn);
    } else if (is_word("not") && is(TokenKind::kName, "in", 1)) {
      at_ += 2;
      operators.push_back(Operator::kNotIn);
    } else {
      break;
    }
    operands.push_back(sum());
  }
  if (operators.empty()) return std::move(operands.front());
  Expression made = make(Kind::kComparison, std::move(operands));
  made.operators = std::move(operators);
  return made;
}

Expression ExpressionParser::chain(Signs signs, Expression (ExpressionParser::*operand)()) {
  Expression left = (this->*operand)();
  for (;;) {
    const auto sign = std::ranges::find_if(
        signs, [this](const auto& candidate) { return is_operator(candidate.first); });
    if (sign == signs.end()) return left;
    ++at_;
    left = join(Kind::kArithmetic, std::move(left), (this->*operand)());
    left.operators = {sign->second};
  }
}

Expression ExpressionParser::sum() {
  return chain({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
               &ExpressionParser::concatenation);
}

Expression ExpressionParser::concatenation() {
  return chain({{"~", Operator::kConcatenate}}, &ExpressionParser::product);
}

Expression ExpressionParser::product() {
  return chain({{"*", Operator::kMultiply},
                {"/", Operator::kDivide},
                {"//", Operator::kFloorDivide},
                {"%", Operator::kModulo}},
               &ExpressionParser::power);
}

Expression ExpressionParser::power() {
  return chain({{"**", Operator::kPower}}, &ExpressionParser::filtered);
}

Expression ExpressionParser::filtered() {
  return filters_of(unary());
}

Expression ExpressionParser::unary() {
  const Nested nested(*this);
  if (skip_operator("-")) return postfix(join(Kind::kNegative, unary()));
  if (skip_operator("+")) {
    Expression sum = join(Kind::kArithmetic, constant(int64_t{0}), unary());
    sum.operators = {Operator::kAdd};
    return postfix(std::move(sum));
  }
  return postfix(primary());
}

Expression ExpressionParser::primary() {
  const Token& first = token();
  if (first.kind == TokenKind::kString) {
    std::string text;
    while (is(TokenKind::kString)) text += tokens_[at_++].text;
    return constant(std::move(text));
  }
  if (first.kind == TokenKind::kInteger || first.kind == TokenKind::kFloat) return number();
  if (first.kind == TokenKind::kName) return name();
  if (skip_operator("(")) {
    Expression inner = is_operator(")") ? make(Kind::kTuple) : tuple(&ExpressionParser::expression);
    expect_operator(")");
    return inner;
  }
  if (skip_operator("[")) return list();
  if (skip_operator("{")) return dict();
  fail_expecting("an expression");
}

Expression ExpressionParser::number() {
  const Token& digits = tokens_[at_];
  const auto integer = parse_int(digits.text);
  const auto real = parse_real(digits.text);
  const bool is_integer = digits.kind == TokenKind::kInteger;
  if (is_integer ? !integer : !real)
    fail(cat("the number ", excerpt(digits.text, 40), " is too large"));
  ++at_;
  return constant(is_integer ? Value(*integer) : Value(*real));
}

Expression ExpressionParser::name() {
  static constexpr std::array kReserved = {"and", "or", "not", "if", "else", "in", "is"};
  if (std::ranges::find(kReserved, token().text) != kReserved.end()) {
    fail_expecting("an expression");
  }
  const std::string text = expect_name();
  if (text == "true" || text == "True") return constant(true);
  if (text == "false" || text == "False") return constant(false);
  if (text == "none" || text == "None") return constant(None());
  Expression made = make(Kind::kName);
  made.name = text;
  return made;
}

Expression ExpressionParser::list() {
  std::vector<Expression> items;
  while (!is_operator("]")) {
    items.push_back(expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return make(Kind::kList, std::move(items));
}

Expression ExpressionParser::dict() {
  std::vector<Expression> parts;
  while (!is_operator("}")) {
    parts.push_back(expression());
    expect_operator(":");
    parts.push_back(expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return make(Kind::kDict, std::move(parts));
}

Expression ExpressionParser::tuple(Expression (ExpressionParser::*item)()) {
  Expression first = (this->*item)();
  if (!is_operator(",")) return first;
  std::vector<Expression> items;
  items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (is(TokenKind::kBlockEnd) || is(TokenKind::kVariableEnd) || is_operator(")")) break;
    items.push_back((this->*item)());
  }
  return make(Kind::kTuple, std::move(items));
}

Expression ExpressionParser::postfix(Expression value) {
  for (;;) {
    if (skip_operator(".")) {
      if (is(TokenKind::kInteger)) {
        value = join(Kind::kItem, std::move(value), number());
      } else {
        value = join(Kind::kAttribute, std::move(value));
        value.name = expect_name();
      }
    } else if (skip_operator("[")) {
      value = subscript(std::move(value));
    } else if (is_operator("(")) {
      value = call(join(Kind::kCall, std::move(value)));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::subscript(Expression value) {
  std::vector<Expression> bounds;
  bool is_slice = false;
  for (int i = 0; i < 3; ++i) {
    const bool is_absent = is_operator(":") || is_operator("]");
    bounds.push_back(is_absent ? constant(None()) : expression());
    if (i == 0 && is_absent && !is_operator(":")) fail_expecting("an index");
    if (i < 2 && skip_operator(":")) is_slice = true;
  }
  expect_operator("]");
  if (!is_slice) return join(Kind::kItem, std::move(value), std::move(bounds[0]));
  return join(Kind::kSlice, std::move(value), std::move(bounds[0]), std::move(bounds[1]),
              std::move(bounds[2]));
}

Expression ExpressionParser::call(Expression to) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (is_operator("**")) fail("arguments with '**' are not supported");
    const bool is_spread = skip_operator("*");
    if (!is_spread && is(TokenKind::kName) && is(TokenKind::kOperator, "=", 1)) {
      to.names.push_back(expect_name());
      ++at_;
    } else if (!to.names.empty()) {
      fail("an argument without a name follows one with a name");
    }
    Expression value = expression();
    to.parts.push_back(is_spread ? join(Kind::kSpread, std::move(value)) : std::move(value));
    to.depth = std::max(to.depth, to.parts.back().depth + 1);
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  check_depth(to.depth);
  return to;
}

const Builtin* ExpressionParser::builtin(const std::vector<Builtin>& table, const char* kind) {
  const Builtin* found = find_builtin(table, token().text);
  if (!is(TokenKind::kName)) fail_expecting(cat("the name of a ", kind));
  if (found == nullptr) {
    fail(cat(kind, " '", excerpt(token().text, 40), "' is not supported; supported are ",
             names_of(table)));
  }
  ++at_;
  return found;
}

Expression ExpressionParser::filter(Expression value) {
  Expression made = join(Kind::kFilter, std::move(value));
  made.builtin = builtin(filters(), "filter");
  return is_operator("(") ? call(std::move(made)) : made;
}

Expression ExpressionParser::filters_of(Expression value) {
  for (;;) {
    if (skip_operator("|")) {
      value = filter(std::move(value));
    } else if (skip_word("is")) {
      value = test(std::move(value));
    } else if (is_operator("(")) {
      value = call(join(Kind::kCall, std::move(value)));
    } else {
      return value;
    }
  }
}

Expression ExpressionParser::test(Expression value) {
  const bool is_negated = skip_word("not");
  Expression made = join(Kind::kTest, std::move(value));
  made.builtin = builtin(tests(), "test");
  if (is_operator("(")) {
    made = call(std::move(made));
  } else if (begins_argument()) {
    made.parts.push_back(postfix(primary()));
    made.depth = std::max(made.depth, made.parts.back().depth + 1);
  }
  return is_negated ? join(Kind::kNot, std::move(made)) : made;
}

bool ExpressionParser::begins_argument() const {
  if (is(TokenKind::kName)) {
    static constexpr std::array kNone = {"else", "or", "and", "if", "is", "in", "not"};
    return std::ranges::find(kNone, token().text) == kNone.end();
  }
  return is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) ||
         is_operator("[") || is_operator("{");
}

}  // namespace shale::jinja
