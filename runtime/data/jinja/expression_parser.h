#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/jinja/lexer.h"
#include "shale/runtime/data/jinja/program.h"

namespace shale::jinja {

// Parses the tokens of a template into expressions; its subclass parses statements.
class ExpressionParser {
 protected:
  static constexpr int kMaxDepth = 150;

  ExpressionParser(std::string_view text, std::string_view source)
      : source_(source), tokens_(tokenize(text, source)) {}

  using Kind = ExpressionKind;

  // Limits the depth of nested expressions, because each level uses the stack.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser) : parser_(parser) {
      parser.check_depth(++parser.depth_);
    }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
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

  // ---- Expressions, lowest precedence first ----

  Expression make(Kind kind, std::vector<Expression> parts = {}) const;
  template <typename... Parts>
  Expression join(Kind kind, Parts&&... parts) const {
    std::vector<Expression> all;
    (all.push_back(std::forward<Parts>(parts)), ...);
    return make(kind, std::move(all));
  }
  Expression constant(Value value) const;
  Expression expression();
  Expression disjunction();
  Expression conjunction();
  Expression negation();
  Expression comparison();
  // Parses a left-associative chain of operators with equal precedence.
  using Signs = std::initializer_list<std::pair<const char*, Operator>>;
  Expression chain(Signs signs, Expression (ExpressionParser::*operand)());
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression power();
  Expression filtered();
  Expression unary();
  Expression primary();
  Expression number();
  Expression name();
  Expression list();
  Expression dict();
  // Parses one expression, or a tuple, which has commas between or after its expressions.
  Expression tuple(Expression (ExpressionParser::*item)());
  Expression postfix(Expression value);
  Expression subscript(Expression value);
  // Parses the arguments in parentheses of a call, filter or test.
  Expression call(Expression to);
  const Builtin* builtin(const std::vector<Builtin>& table, const char* kind);
  Expression filter(Expression value);
  Expression filters_of(Expression value);
  Expression test(Expression value);
  // Returns true if an argument without parentheses follows a test, as in `x is divisibleby 3`.
  bool begins_argument() const;

  const std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace shale::jinja
