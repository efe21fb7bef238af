#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // string without quotes, with escapes replaced
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Tokenizes a template as with trim_blocks and lstrip_blocks, and without a final newline. Omits
// comments. The text of raw blocks becomes kData. The last token is kEnd. Throws DataError.
std::vector<Token> tokenize(std::string_view text, std::string_view source);

}  // namespace shale::jinja
