#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/jinja/expression_parser.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::jinja {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 10;

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view text, std::string_view source) : ExpressionParser(text, source) {}

  Program run() {
    return {.body = block({}), .has_generations = has_generations_};
  }

 private:
  // ---- Statements ----

  // Parses statements up to a tag with a name in `ends`, and reads the beginning of that tag. If
  // `ends` is empty, parses up to the end of the template.
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
  // Parses the block of a statement that only the tag `end` can end.
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
    if (!made.target.attribute.empty()) fail("expected names between 'for' and 'in'");
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

  // Parses the filters of a block, which are applied to its text.
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
    if (loops_ == 0) fail(cat("'", name, "' is not inside a loop"));
    made.kind = kind;
    end_tag();
  }

  int loops_ = 0;  // nesting depth of loops around the statement
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
