#pragma once

#include <string>
#include <string_view>

#include "shale/runtime/data/text/tokenizer/tokenizer.h"

namespace shale::test {

// Published tokenizers, made from files in test/fixtures/tokenizer.
Tokenizer gpt2_tokenizer();
// cl100k_file() is tiktoken's file; cl100k_tokenizer() adds special tokens and a split pattern.
std::string cl100k_file();
Tokenizer cl100k_tokenizer(
    tokenizer_internal::SplitPattern pattern = tokenizer_internal::SplitPattern::kCl100k);

// Content of GPT-2's tokenizer.json.
std::string gpt2_json();

}  // namespace shale::test
