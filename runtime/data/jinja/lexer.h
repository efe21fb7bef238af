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
  kString,  // without quotes, escapes resolved
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

// Tokenizes a template, with trim_blocks and lstrip_blocks, and without a final newline. Omits
// comments; the text of raw blocks is data. The last token is kEnd. Throws DataError.
std::vector<Token> tokenize(std::string_view text, std::string_view source);

}  // namespace shale::jinja
