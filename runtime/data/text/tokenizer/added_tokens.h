#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::tokenizer_internal {

// Finds added tokens in text: leftmost, of those that begin at one place the longest.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    size_t begin = 0;  // with the white space that the token takes
    size_t end = 0;
    const AddedToken* token = nullptr;  // null: none; begin and end are the text's end
  };
  // The first at or behind `from`; with special ones if they are wanted.
  Match find(std::string_view text, size_t from, bool special) const;
  bool empty() const { return tokens_.empty(); }

 private:
  const AddedToken* longest_at(std::string_view text, size_t at, bool special) const;

  std::vector<AddedToken> tokens_;  // by text
  std::vector<bool> begins_;        // whether a token begins with the byte
};

}  // namespace shale::tokenizer_internal
