#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale {

// Options for training a byte-level tokenizer.
struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  // special tokens + 256 bytes + merges
  int64_t min_frequency = 2;   // minimum count of a pair; rarer pairs are not merged
  tokenizer_internal::SplitPattern pattern = tokenizer_internal::SplitPattern::kCl100k;
  std::vector<std::string> special = {"<|endoftext|>"};  // special tokens, which get the first ids
};

// Pieces of text with their number of occurrences.
using PieceCounts = std::unordered_map<std::string, int64_t>;

// Counts the pieces into which the pattern splits a text.
void count_pieces(std::string_view text, tokenizer_internal::SplitPattern pattern,
                  PieceCounts& counts);

// Trains byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909) like Hugging Face's
// tokenizers: first special tokens, then bytes in the order of the characters that represent them,
// then merges of the most frequent pair; of equally frequent pairs the one with lower ids. The
// result depends only on the counts. `on_merge` is called from time to time with the number of
// tokens; an exception that it throws ends the training. Throws ConfigError for a vocabulary that
// is too small for bytes and special tokens, or larger than 2^22, and for special tokens that are
// repeated or are not at least two visible ASCII characters.
TokenizerSpec train_bpe(const PieceCounts& counts, const BpeTrainerOptions& options,
                        const std::function<void(int64_t tokens)>& on_merge = {});

}  // namespace shale
