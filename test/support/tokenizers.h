#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::test {

// Published tokenizers, made from files in test/fixtures/tokenizer.
Tokenizer gpt2_tokenizer();
// cl100k_file() returns the content of tiktoken's file. cl100k_tokenizer() adds special tokens and
// a split pattern to it.
std::string cl100k_file();
Tokenizer cl100k_tokenizer(
    tokenizer_internal::SplitPattern pattern = tokenizer_internal::SplitPattern::kCl100k);

// Content of GPT-2's tokenizer.json.
std::string gpt2_json();

// Makes a byte-level tokenizer whose first tokens are these special tokens.
std::shared_ptr<const StoredTokenizer> bytes_with(const std::vector<std::string>& marks);
// Makes a byte-level tokenizer with the special tokens of ChatML: <|endoftext|>, <|im_start|>,
// <|im_end|>.
std::shared_ptr<const StoredTokenizer> chatml();

}  // namespace shale::test
