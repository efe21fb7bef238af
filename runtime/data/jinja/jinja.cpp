#include "shale/runtime/data/jinja/jinja.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"
#include "shale/runtime/data/jinja/program.h"
#include "shale/runtime/data/jinja/run.h"

namespace shale::jinja {

// Variables of a block. If a name is not found, the enclosing scope is searched.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> around) : around_(std::move(around)) {}

  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around_.get()) {
      const auto found = scope->values_.find(name);
      if (found != scope->values_.end()) return &found->second;
    }
    return nullptr;
  }
  const std::shared_ptr<Scope>& around() const { return around_; }

 private:
  const std::shared_ptr<Scope> around_;
  std::map<std::string, Value> values_;
};

namespace {

class Renderer {
 public:
  Renderer(const Program& program, const JinjaOptions& options)
      : program_(program),
        run_(program.source, options),
        scope_(std::make_shared<Scope>(nullptr)) {}

  JinjaText render(const Json& values) {
    for (const auto& [name, value] : values.items()) scope_->set(name, Value(value));
    execute(program_.body);
    return {std::move(text_), std::move(generations_)};
  }

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };

  // Enters a new scope for a block, until this object is destroyed.
  class Inner {
   public:
    Inner(Renderer& renderer, std::shared_ptr<Scope> around)
        : renderer_(renderer),
          outer_(std::exchange(renderer.scope_, std::make_shared<Scope>(std::move(around)))) {}
    explicit Inner(Renderer& renderer) : Inner(renderer, renderer.scope_) {}
    ~Inner() { renderer_.scope_ = std::move(outer_); }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Renderer& renderer_;
    std::shared_ptr<Scope> outer_;
  };

  // ---- Statements ----

  Flow execute(const Statement::Block& block) {
    for (const Statement& statement : block) {
      const Flow flow = execute(statement);
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  Flow execute(const Statement& statement) {
    const Run::Nested nested(run_);
    run_.at_line(statement.line);
    run_.spend_steps(1);
    switch (statement.kind) {
      case StatementKind::kData: run_.append(statement.text, text_); break;
      case StatementKind::kOutput:
        append_str(run_, evaluate(statement.expressions[0]), text_);
        break;
      case StatementKind::kIf: return execute_if(statement);
      case StatementKind::kFor: return execute_for(statement);
      case StatementKind::kSet: assign(statement.target, evaluate(statement.expressions[0])); break;
      case StatementKind::kSetBlock: assign(statement.target, filtered_block(statement)); break;
      case StatementKind::kFilter: append_str(run_, filtered_block(statement), text_); break;
      case StatementKind::kMacro:
        scope_->set(statement.text, std::make_shared<const Function>(Function{
                                        .name = statement.text,
                                        .macro = &statement,
                                        .scope = scope_,
                                    }));
        break;
      case StatementKind::kGeneration: execute_generation(statement); break;
      case StatementKind::kBreak: return Flow::kBreak;
      case StatementKind::kContinue: return Flow::kContinue;
    }
    return Flow::kOn;
  }

  Flow execute_if(const Statement& statement) {
    size_t i = 0;
    while (i < statement.expressions.size() && !evaluate(statement.expressions[i]).is_true()) ++i;
    return i < statement.blocks.size() ? execute(statement.blocks[i]) : Flow::kOn;
  }

  Flow execute_for(const Statement& statement) {
    Sequence items = iterate(run_, evaluate(statement.expressions[0]));
    if (statement.expressions.size() > 1) items = chosen(statement, items);
    if (items.items->empty() && statement.blocks.size() > 1) {
      const Inner inner(*this);
      return execute(statement.blocks[1]);
    }
    const auto loop = std::make_shared<Loop>(Loop{.sequence = items});
    for (const Value& item : *items.items) {
      run_.spend_steps(1);
      const Inner inner(*this);
      assign(statement.target, item);
      scope_->set("loop", std::shared_ptr<const Loop>(loop));
      if (execute(statement.blocks[0]) == Flow::kBreak) break;
      ++loop->index;
    }
    return Flow::kOn;
  }

  Sequence chosen(const Statement& statement, const Sequence& items) {
    List kept;
    for (const Value& item : *items.items) {
      const Inner inner(*this);
      assign(statement.target, item);
      if (evaluate(statement.expressions[1]).is_true()) kept.push_back(item);
    }
    return *run_.list(std::move(kept)).as<Sequence>();
  }

  void execute_generation(const Statement& statement) {
    if (captures_ > 0) {
      run_.fail(
          "a generation block inside a macro, inside a block whose text is assigned, or inside "
          "another generation block is not supported");
    }
    ++captures_;
    const size_t begin = text_.size();
    const Inner inner(*this);
    execute(statement.blocks[0]);
    generations_.push_back({begin, text_.size()});
    --captures_;
  }

  // Executes a block and returns the text that it writes.
  std::string captured(const Statement::Block& block) {
    std::string outside = std::exchange(text_, {});
    ++captures_;
    execute(block);
    --captures_;
    return std::exchange(text_, std::move(outside));
  }

  Value filtered_block(const Statement& statement) {
    const Inner inner(*this);
    Value text = captured(statement.blocks[0]);
    if (statement.expressions.empty()) return text;
    scope_->set(kBlockText, std::move(text));
    return evaluate(statement.expressions[0]);
  }

  void assign(const Target& target, const Value& value) {
    if (!target.attribute.empty()) return assign_attribute(target, value);
    if (target.names.size() == 1) return scope_->set(target.names[0], value);
    const Sequence parts = iterate(run_, value);
    if (parts.items->size() != target.names.size()) {
      run_.fail(cat("expected ", target.names.size(), " values for ", target.names.size(),
                    " names, found ", parts.items->size()));
    }
    for (size_t i = 0; i < target.names.size(); ++i)
      scope_->set(target.names[i], (*parts.items)[i]);
  }

  void assign_attribute(const Target& target, const Value& value) {
    const Value* owner = scope_->find(target.names[0]);
    Namespace* space = owner == nullptr ? nullptr : owner->space();
    if (space == nullptr) {
      run_.fail(cat("'", target.names[0], ".", target.attribute, "' can only be set if '",
                    target.names[0], "' is a namespace()"));
    }
    space->members[target.attribute] = value;
  }

  // ---- Expressions ----

  Value evaluate(const Expression& expression) {
    const Run::Nested nested(run_);
    run_.spend_steps(1);
    const auto& parts = expression.parts;
    switch (expression.kind) {
      case ExpressionKind::kConstant: return expression.constant;
      case ExpressionKind::kName: return lookup(expression.name);
      case ExpressionKind::kList: return run_.list(all_of(parts));
      case ExpressionKind::kTuple: return run_.list(all_of(parts), SequenceForm::kTuple);
      case ExpressionKind::kDict: return dict(parts);
      case ExpressionKind::kNot: return !evaluate(parts[0]).is_true();
      case ExpressionKind::kAnd:
      case ExpressionKind::kOr: {
        Value left = evaluate(parts[0]);
        const bool decides = left.is_true() == (expression.kind == ExpressionKind::kOr);
        return decides ? left : evaluate(parts[1]);
      }
      case ExpressionKind::kConditional:
        if (evaluate(parts[1]).is_true()) return evaluate(parts[0]);
        return parts.size() > 2 ? evaluate(parts[2]) : Value();
      case ExpressionKind::kComparison: return comparison(expression);
      default: return operation(expression);
    }
  }

  // Evaluates an operation. Its operands set their own line numbers for errors, so the line is set
  // again after evaluating them.
  Value operation(const Expression& expression) {
    const auto& parts = expression.parts;
    const Value first = evaluate(parts[0]);
    switch (expression.kind) {
      case ExpressionKind::kAttribute:
        run_.at_line(expression.line);
        return attribute(run_, first, expression.name);
      case ExpressionKind::kItem: {
        const Value key = evaluate(parts[1]);
        run_.at_line(expression.line);
        return item(run_, first, key);
      }
      case ExpressionKind::kSlice: {
        const Value begin = evaluate(parts[1]), end = evaluate(parts[2]), step = evaluate(parts[3]);
        run_.at_line(expression.line);
        return slice(run_, first, begin, end, step);
      }
      case ExpressionKind::kNegative: run_.at_line(expression.line); return negative(run_, first);
      case ExpressionKind::kArithmetic: {
        const Value second = evaluate(parts[1]);
        run_.at_line(expression.line);
        return arithmetic(run_, expression.operators[0], first, second);
      }
      default: break;
    }
    Arguments given = arguments(expression);
    run_.at_line(expression.line);
    if (expression.builtin != nullptr) {
      return call_builtin(run_, *expression.builtin, first, std::move(given));
    }
    return call(first, std::move(given));
  }

  Value lookup(const std::string& name) {
    if (const Value* value = scope_->find(name)) return *value;
    if (const Builtin* builtin = find_builtin(functions(), name)) {
      return std::make_shared<const Function>(Function{.name = name, .builtin = builtin});
    }
    return Undefined{std::make_shared<const std::string>(cat("'", name, "' is undefined"))};
  }

  List all_of(const std::vector<Expression>& expressions) {
    List values;
    for (const Expression& expression : expressions) values.push_back(evaluate(expression));
    return values;
  }

  Value dict(const std::vector<Expression>& parts) {
    Dict members;
    for (size_t i = 0; i < parts.size(); i += 2) {
      Value key = evaluate(parts[i]);
      if (key.depth() > 0 || key.is<Undefined>() || key.space() != nullptr) {
        run_.fail(cat("a value of type ", key.type(), " cannot be the key of a dict"));
      }
      const auto is_key = [&](const auto& member) {
        return compare(run_, Operator::kEqual, member.first, key);
      };
      const auto same = std::ranges::find_if(members, is_key);
      if (same == members.end()) {
        members.emplace_back(std::move(key), evaluate(parts[i + 1]));
      } else {
        same->second = evaluate(parts[i + 1]);
      }
    }
    return run_.dict(std::move(members));
  }

  Value comparison(const Expression& expression) {
    Value left = evaluate(expression.parts[0]);
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      Value right = evaluate(expression.parts[i + 1]);
      run_.at_line(expression.line);
      if (!compare(run_, expression.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Arguments arguments(const Expression& expression) {
    Arguments given;
    const size_t unnamed = expression.parts.size() - expression.names.size();
    for (size_t i = 1; i < expression.parts.size(); ++i) {
      const Expression& part = expression.parts[i];
      if (i >= unnamed) {
        given.named.emplace_back(expression.names[i - unnamed], evaluate(part));
      } else if (part.kind == ExpressionKind::kSpread) {
        const Sequence values = iterate(run_, evaluate(part.parts[0]));
        given.positional.insert(given.positional.end(), values.items->begin(), values.items->end());
      } else {
        given.positional.push_back(evaluate(part));
      }
    }
    return given;
  }

  Value call(const Value& callee, Arguments given) {
    const auto* function = callee.as<std::shared_ptr<const Function>>();
    if (function == nullptr) {
      const auto* undefined = callee.as<Undefined>();
      const bool has_reason = undefined != nullptr && undefined->reason;
      run_.fail(has_reason ? *undefined->reason
                           : cat("a value of type ", callee.type(), " cannot be called"));
    }
    if ((*function)->macro != nullptr) return call_macro(**function, given);
    const Value self = (*function)->self ? *(*function)->self : Value();
    return call_builtin(run_, *(*function)->builtin, self, std::move(given));
  }

  Value call_macro(const Function& function, const Arguments& given) {
    const Statement& macro = *function.macro;
    const auto& parameters = macro.parameters;
    std::shared_ptr<Scope> around = function.scope.lock();
    if (!around)
      run_.fail(
          cat("macro '", function.name, "' is called after the end of the block that defines it"));
    if (given.positional.size() > parameters.size()) {
      run_.fail(cat("macro '", function.name, "' takes at most ", parameters.size(),
                    " arguments, found ", given.positional.size()));
    }
    const Inner inner(*this, std::move(around));
    for (const auto& [name, value] : given.named) {
      const auto place = std::ranges::find(parameters, name) - parameters.begin();
      if (place == std::ssize(parameters) || place < std::ssize(given.positional)) {
        run_.fail(cat("macro '", function.name, "' has no argument '", excerpt(name), "'"));
      }
      scope_->set(name, value);
    }
    const size_t without_default = parameters.size() - macro.expressions.size();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto is_this = [&](const auto& named) { return named.first == parameters[i]; };
      if (i < given.positional.size()) {
        scope_->set(parameters[i], given.positional[i]);
      } else if (std::ranges::none_of(given.named, is_this)) {
        scope_->set(parameters[i], i < without_default
                                       ? Value()
                                       : evaluate(macro.expressions[i - without_default]));
      }
    }
    return captured(macro.blocks[0]);
  }

  const Program& program_;
  Run run_;
  std::shared_ptr<Scope> scope_;
  std::string text_;  // output of the template, or of the block that captured() executes
  int captures_ = 0;
  std::vector<JinjaText::Range> generations_;
};

}  // namespace
}  // namespace shale::jinja

namespace shale {

JinjaTemplate::JinjaTemplate(std::string_view text, std::string source)
    : program_(std::make_shared<const jinja::Program>(jinja::parse(text, std::move(source)))) {}

JinjaText JinjaTemplate::render(const Json& values, const JinjaOptions& options) const {
  return jinja::Renderer(*program_, options).render(values);
}

bool JinjaTemplate::marks_generations() const {
  return program_->has_generations;
}

}  // namespace shale
