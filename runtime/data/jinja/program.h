#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/jinja/builtins.h"
#include "shale/runtime/data/jinja/operations.h"
#include "shale/runtime/data/jinja/value.h"

// Syntax tree of a template. The comments of the kinds use the fields of Expression and Statement.
namespace shale::jinja {

enum class ExpressionKind : uint8_t {
  kConstant,     // the field `constant`
  kName,         // a variable: the field `name`
  kList,         // [parts...]
  kTuple,        // (parts...)
  kDict,         // {key: value, ...}; parts: key, value, key, value...
  kAttribute,    // parts[0].name
  kItem,         // parts[0][parts[1]]
  kSlice,        // parts[0][parts[1] : parts[2] : parts[3]]
  kCall,         // parts[0](parts[1...]); the last arguments have the keywords `names`
  kSpread,       // *parts[0] as an argument of a call
  kFilter,       // parts[0] | builtin(parts[1...]); arguments as in kCall
  kTest,         // parts[0] is builtin(parts[1...]); arguments as in kCall
  kNot,          // not parts[0]
  kNegative,     // -parts[0]
  kArithmetic,   // parts[0] op parts[1]
  kComparison,   // parts[0] operators[0] parts[1] operators[1] parts[2]...
  kAnd,          // parts[0] and parts[1]
  kOr,           // parts[0] or parts[1]
  kConditional,  // parts[0] if parts[1] else parts[2]; parts[2] may be missing
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  int depth = 1;  // nesting depth of expressions
  std::string name;
  Value constant;
  const Builtin* builtin = nullptr;
  std::vector<Operator> operators;
  std::vector<Expression> parts;
  std::vector<std::string> names;  // keywords of the last arguments
};

// Target of an assignment: a name, several names, or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  std::string attribute;
};

enum class StatementKind : uint8_t {
  kData,    // the field `text`
  kOutput,  // expressions[0]
  // executes blocks[i] for the first true expressions[i]; if none is true, the block after them
  kIf,
  kFor,  // for target in expressions[0] if expressions[1]: blocks[0]; without items: blocks[1]
  kSet,  // target = expressions[0]
  // target = the text of blocks[0]; with filters, target = expressions[0] with the text as
  // kBlockText
  kSetBlock,
  kFilter,      // expressions[0], in which kBlockText is the text of blocks[0]
  kMacro,       // macro text(parameters = expressions...): blocks[0]
  kGeneration,  // generation block: blocks[0]
  kBreak,
  kContinue,
};

// Name of the variable that contains the text of a block with filters. No template can write this
// name.
inline constexpr const char* kBlockText = "";

struct Statement {
  using Block = std::vector<Statement>;

  StatementKind kind = StatementKind::kData;
  int line = 0;
  std::string text;
  Target target;
  // parameters of a macro; the last ones have defaults in `expressions`
  std::vector<std::string> parameters;
  std::vector<Expression> expressions;
  std::vector<Block> blocks;
};

struct Program {
  std::string source;
  Statement::Block body;
  bool has_generations = false;
};

// Parses a template. Throws DataError, with the line, for invalid or unsupported templates.
Program parse(std::string_view text, std::string source);

}  // namespace shale::jinja
