#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::tokenizer_internal {

// Finds added tokens in text. Finds the leftmost match; if several tokens match there, the longest.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    size_t begin = 0;  // begin of the match, including white space that the token removes
    size_t end = 0;
    // null: no match; begin and end are then the end of the text
    const AddedToken* token = nullptr;
  };
  // Returns the first match at or after `from`. special: also finds special tokens.
  Match find(std::string_view text, size_t from, bool special) const;
  bool empty() const { return tokens_.empty(); }

 private:
  const AddedToken* longest_at(std::string_view text, size_t at, bool special) const;

  std::vector<AddedToken> tokens_;  // tokens, sorted by text
  std::vector<bool> begins_;        // for each byte: true if a token begins with it
};

}  // namespace shale::tokenizer_internal
