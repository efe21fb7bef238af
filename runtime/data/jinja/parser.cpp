#include <algorithm>
#include <array>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/jinja/lexer.h"
#include "shale/runtime/data/jinja/program.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::jinja {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 10;
constexpr int kMaxDepth = 150;

class Parser {
 public:
  Parser(std::string_view text, std::string_view source)
      : source_(source), tokens_(tokenize(text, source)) {}

  Program run() {
    Program program;
    program.body = block({});
    program.has_generations = has_generations_;
    return program;
  }

 private:
  using Kind = ExpressionKind;

  // Counts what is inside what, as each level uses the stack.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) { parser.check_depth(++parser.depth_); }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void fail(std::string_view problem) const {
    throw DataError(cat(source_, ", line ", token().line, ": ", problem));
  }
  void check_depth(int depth) const {
    if (depth > kMaxDepth) fail(cat("the template is nested deeper than ", kMaxDepth, " levels"));
  }

  // ---- Tokens ----

  const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is(TokenKind kind) const { return token().kind == kind; }
  bool is(TokenKind kind, std::string_view text, size_t ahead = 0) const {
    return token(ahead).kind == kind && token(ahead).text == text;
  }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator, text); }
  bool is_word(std::string_view text) const { return is(TokenKind::kName, text); }
  bool skip(TokenKind kind, std::string_view text) {
    if (!is(kind, text)) return false;
    ++at_;
    return true;
  }
  bool skip_operator(std::string_view text) { return skip(TokenKind::kOperator, text); }
  bool skip_word(std::string_view text) { return skip(TokenKind::kName, text); }
  [[noreturn]] void fail_expecting(std::string_view expected) const {
    const Token& found = token();
    std::string text = cat("'", excerpt(found.text, 40), "'");
    if (found.kind == TokenKind::kBlockEnd) text = "'%}'";
    if (found.kind == TokenKind::kVariableEnd) text = "'}}'";
    if (found.kind == TokenKind::kEnd) text = "the end of the template";
    fail(cat("expected ", expected, ", found ", text));
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expecting(cat("'", text, "'"));
  }
  void expect_word(std::string_view text) {
    if (!skip_word(text)) fail_expecting(cat("'", text, "'"));
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail_expecting(what);
    ++at_;
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) fail_expecting("a name");
    return tokens_[at_++].text;
  }

  // ---- Expressions, loosest first ----

  Expression make(Kind kind, std::vector<Expression> parts = {}) const {
    Expression made{.kind = kind, .line = token().line, .parts = std::move(parts)};
    for (const Expression& part : made.parts) made.depth = std::max(made.depth, part.depth + 1);
    check_depth(made.depth);
    return made;
  }
  template <typename... Parts>
  Expression join(Kind kind, Parts&&... parts) const {
    std::vector<Expression> all;
    (all.push_back(std::forward<Parts>(parts)), ...);
    return make(kind, std::move(all));
  }
  Expression constant(Value value) const {
    Expression made = make(Kind::kConstant);
    made.constant = std::move(value);
    return made;
  }

  Expression expression() {
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
  Expression disjunction() {
    Expression left = conjunction();
    while (skip_word("or")) left = join(Kind::kOr, std::move(left), conjunction());
    return left;
  }
  Expression conjunction() {
    Expression left = negation();
    while (skip_word("and")) left = join(Kind::kAnd, std::move(left), negation());
    return left;
  }
  Expression negation() {
    const Nested nested(*this);
    return skip_word("not") ? join(Kind::kNot, negation()) : comparison();
  }

  Expression comparison() {
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

  // A chain of operators that bind alike, from the left.
  using Signs = std::initializer_list<std::pair<const char*, Operator>>;
  Expression chain(Signs signs, Expression (Parser::*operand)()) {
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
  Expression sum() {
    return chain({{"+", Operator::kAdd}, {"-", Operator::kSubtract}}, &Parser::concatenation);
  }
  Expression concatenation() { return chain({{"~", Operator::kConcatenate}}, &Parser::product); }
  Expression product() {
    return chain({{"*", Operator::kMultiply},
                  {"/", Operator::kDivide},
                  {"//", Operator::kFloorDivide},
                  {"%", Operator::kModulo}},
                 &Parser::power);
  }
  Expression power() { return chain({{"**", Operator::kPower}}, &Parser::filtered); }
  Expression filtered() { return filters_of(unary()); }

  Expression unary() {
    const Nested nested(*this);
    if (skip_operator("-")) return postfix(join(Kind::kNegative, unary()));
    if (skip_operator("+")) {
      Expression sum = join(Kind::kArithmetic, constant(int64_t{0}), unary());
      sum.operators = {Operator::kAdd};
      return postfix(std::move(sum));
    }
    return postfix(primary());
  }

  Expression primary() {
    const Token& first = token();
    if (first.kind == TokenKind::kString) {
      std::string text;
      while (is(TokenKind::kString)) text += tokens_[at_++].text;
      return constant(std::move(text));
    }
    if (first.kind == TokenKind::kInteger || first.kind == TokenKind::kFloat) return number();
    if (first.kind == TokenKind::kName) return name();
    if (skip_operator("(")) {
      Expression inner = is_operator(")") ? make(Kind::kTuple) : tuple(&Parser::expression);
      expect_operator(")");
      return inner;
    }
    if (skip_operator("[")) return list();
    if (skip_operator("{")) return dict();
    fail_expecting("an expression");
  }

  Expression number() {
    const Token& digits = tokens_[at_];
    const auto integer = parse_int(digits.text);
    const auto real = parse_real(digits.text);
    const bool is_integer = digits.kind == TokenKind::kInteger;
    if (is_integer ? !integer : !real)
      fail(cat("the number ", excerpt(digits.text, 40), " is too large"));
    ++at_;
    return constant(is_integer ? Value(*integer) : Value(*real));
  }

  Expression name() {
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

  Expression list() {
    std::vector<Expression> items;
    while (!is_operator("]")) {
      items.push_back(expression());
      if (!skip_operator(",")) break;
    }
    expect_operator("]");
    return make(Kind::kList, std::move(items));
  }
  Expression dict() {
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

  // One expression, or several with commas between or behind them.
  Expression tuple(Expression (Parser::*item)()) {
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

  Expression postfix(Expression value) {
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

  Expression subscript(Expression value) {
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

  // Adds the arguments in parentheses to a call, filter or test.
  Expression call(Expression to) {
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

  const Builtin* builtin(const std::vector<Builtin>& table, const char* kind) {
    const Builtin* found = find_builtin(table, token().text);
    if (!is(TokenKind::kName)) fail_expecting(cat("the name of a ", kind));
    if (found == nullptr) {
      fail(cat(kind, " '", excerpt(token().text, 40), "' is not supported; supported are ",
               names_of(table)));
    }
    ++at_;
    return found;
  }

  Expression filter(Expression value) {
    Expression made = join(Kind::kFilter, std::move(value));
    made.builtin = builtin(filters(), "filter");
    return is_operator("(") ? call(std::move(made)) : made;
  }

  Expression filters_of(Expression value) {
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

  Expression test(Expression value) {
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
  // An argument of a test without parentheses: `x is divisibleby 3`.
  bool begins_argument() const {
    if (is(TokenKind::kName)) {
      static constexpr std::array kNone = {"else", "or", "and", "if", "is", "in", "not"};
      return std::ranges::find(kNone, token().text) == kNone.end();
    }
    return is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) ||
           is_operator("[") || is_operator("{");
  }

  // ---- Statements ----

  // Statements up to a tag of one of those names, which is passed up to its name; without names, up
  // to the end of the template.
  Statement::Block block(std::initializer_list<std::string_view> ends) {
    const Nested nested(*this);
    Statement::Block statements;
    for (;;) {
      if (is(TokenKind::kEnd)) {
        if (ends.size() == 0) return statements;
        fail_expecting(cat("'{% ", *(ends.end() - 1), " %}'"));
      }
      Statement made{.line = token().line};
      if (is(TokenKind::kData)) {
        made.text = tokens_[at_++].text;
      } else if (is(TokenKind::kVariableBegin)) {
        ++at_;
        made.kind = StatementKind::kOutput;
        made.expressions.push_back(tuple(&Parser::expression));
        expect(TokenKind::kVariableEnd, "'}}'");
      } else {
        expect(TokenKind::kBlockBegin, "'{%'");
        if (is(TokenKind::kName) && std::ranges::find(ends, token().text) != ends.end()) {
          return statements;
        }
        tag(made);
      }
      statements.push_back(std::move(made));
    }
  }
  void end_tag() { expect(TokenKind::kBlockEnd, "'%}'"); }
  // The block of a tag with one end.
  void body(Statement& made, std::string_view end) {
    end_tag();
    made.blocks.push_back(block({end}));
    expect_word(end);
    end_tag();
  }

  void tag(Statement& made) {
    struct Tag {
      std::string_view name;
      void (Parser::*parse)(Statement&);
    };
    static constexpr Tag kTags[] = {
        {"if", &Parser::if_tag},         {"for", &Parser::for_tag},
        {"set", &Parser::set_tag},       {"macro", &Parser::macro_tag},
        {"filter", &Parser::filter_tag}, {"generation", &Parser::generation_tag},
        {"break", &Parser::break_tag},   {"continue", &Parser::continue_tag}};
    const auto found = std::ranges::find(kTags, token().text, &Tag::name);
    if (!is(TokenKind::kName) || found == std::end(kTags)) {
      std::string names;
      for (const Tag& known : kTags) names += cat(known.name, ", ");
      fail(cat("tag '", excerpt(token().text, 40), "' is not supported here; supported are ", names,
               "raw"));
    }
    ++at_;
    (this->*found->parse)(made);
  }

  void if_tag(Statement& made) {
    made.kind = StatementKind::kIf;
    do {
      made.expressions.push_back(tuple(&Parser::disjunction));
      end_tag();
      made.blocks.push_back(block({"elif", "else", "endif"}));
    } while (skip_word("elif"));
    if (skip_word("else")) {
      end_tag();
      made.blocks.push_back(block({"endif"}));
    }
    expect_word("endif");
    end_tag();
  }

  void for_tag(Statement& made) {
    made.kind = StatementKind::kFor;
    made.target = target();
    if (!made.target.attribute.empty()) fail("a loop assigns to names");
    expect_word("in");
    made.expressions.push_back(tuple(&Parser::disjunction));
    if (skip_word("if")) made.expressions.push_back(expression());
    if (is_word("recursive")) fail("'recursive' loops are not supported");
    end_tag();
    ++loops_;
    made.blocks.push_back(block({"else", "endfor"}));
    --loops_;
    if (skip_word("else")) {
      end_tag();
      made.blocks.push_back(block({"endfor"}));
    }
    expect_word("endfor");
    end_tag();
  }

  Target target() {
    Target made;
    const bool has_parentheses = skip_operator("(");
    do {
      if (is_operator(")") || is_word("in")) break;
      made.names.push_back(expect_name());
    } while (skip_operator(","));
    if (has_parentheses) expect_operator(")");
    if (made.names.size() == 1 && skip_operator(".")) made.attribute = expect_name();
    return made;
  }

  void set_tag(Statement& made) {
    made.target = target();
    if (skip_operator("=")) {
      made.kind = StatementKind::kSet;
      made.expressions.push_back(tuple(&Parser::expression));
      return end_tag();
    }
    made.kind = StatementKind::kSetBlock;
    if (skip_operator("|")) made.expressions.push_back(block_filters());
    body(made, "endset");
  }

  // Filters of the text of a block.
  Expression block_filters() {
    Expression text = make(Kind::kName);
    text.name = kBlockText;
    return filters_of(filter(std::move(text)));
  }
  void filter_tag(Statement& made) {
    made.kind = StatementKind::kFilter;
    made.expressions.push_back(block_filters());
    body(made, "endfilter");
  }

  void macro_tag(Statement& made) {
    made.kind = StatementKind::kMacro;
    made.text = expect_name();
    expect_operator("(");
    while (!is_operator(")")) {
      made.parameters.push_back(expect_name());
      if (skip_operator("=")) {
        made.expressions.push_back(expression());
      } else if (!made.expressions.empty()) {
        fail("a parameter without default follows one with a default");
      }
      if (!skip_operator(",")) break;
    }
    expect_operator(")");
    const int loops = std::exchange(loops_, 0);
    body(made, "endmacro");
    loops_ = loops;
  }

  void generation_tag(Statement& made) {
    made.kind = StatementKind::kGeneration;
    has_generations_ = true;
    const int loops = std::exchange(loops_, 0);
    body(made, "endgeneration");
    loops_ = loops;
  }

  void break_tag(Statement& made) { leave(made, StatementKind::kBreak, "break"); }
  void continue_tag(Statement& made) { leave(made, StatementKind::kContinue, "continue"); }
  void leave(Statement& made, StatementKind kind, std::string_view name) {
    if (loops_ == 0) fail(cat("'", name, "' is outside of a loop"));
    made.kind = kind;
    end_tag();
  }

  const std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around the statement
  bool has_generations_ = false;
};

}  // namespace

Program parse(std::string_view text, std::string source) {
  if (text.size() > kMaxBytes) {
    throw DataError(
        cat(source, ": the template has ", text.size(), " bytes, expected at most ", kMaxBytes));
  }
  if (const size_t at = tokenizer_internal::find_broken_utf8(text); at != text.npos) {
    throw DataError(cat(source, ": the template is not UTF-8 at byte ", at));
  }
  Program program = Parser(text, source).run();
  program.source = std::move(source);
  return program;
}

}  // namespace shale::jinja
