#pragma once

#include <string>
#include <string_view>

#include "shale/runtime/data/text/tokenizer/tokenizer.h"

namespace shale::test {

// Published tokenizers, from test/fixtures/tokenizer.
Tokenizer gpt2_tokenizer();
// tiktoken's file, as its bytes; with cl100k's special tokens, or as another pattern splits.
std::string cl100k_file();
Tokenizer cl100k_tokenizer(
    tokenizer_internal::SplitPattern pattern = tokenizer_internal::SplitPattern::kCl100k);

// GPT-2's tokenizer.json.
std::string gpt2_json();

}  // namespace shale::test
