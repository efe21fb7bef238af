#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale {

// What a tokenizer of bytes is trained to be.
struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  // special tokens, 256 bytes and merges
  int64_t min_frequency = 2;   // of a pair, to be merged
  tokenizer_internal::SplitPattern pattern = tokenizer_internal::SplitPattern::kCl100k;
  std::vector<std::string> special = {"<|endoftext|>"};  // the first ids
};

// Pieces of text and how often they came.
using PieceCounts = std::unordered_map<std::string, int64_t>;

// Counts the pieces of a text, as the pattern splits it.
void count_pieces(std::string_view text, tokenizer_internal::SplitPattern pattern,
                  PieceCounts& counts);

// Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909) by the rule of Hugging Face's
// tokenizers: special tokens, then bytes in the order of the characters that stand for them, then
// merges of the pair that is there most often, of equal ones that of the lower ids. The result
// depends on the counts alone. `on_merge` is told how many tokens there are, now and then; what it
// throws ends the training. Throws ConfigError for a vocabulary that is too small for bytes and
// special tokens, or beyond 2^22, and for special tokens that are equal or not made of two visible
// characters of ASCII or more.
TokenizerSpec train_bpe(const PieceCounts& counts, const BpeTrainerOptions& options,
                        const std::function<void(int64_t tokens)>& on_merge = {});

}  // namespace shale
