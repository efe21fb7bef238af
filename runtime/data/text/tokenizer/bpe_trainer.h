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
  int64_t vocab_size = 32000;  // number of special tokens + 256 bytes + number of merges
  int64_t min_frequency = 2;   // minimum count of a pair; rarer pairs are not merged
  tokenizer_internal::SplitPattern pattern = tokenizer_internal::SplitPattern::kCl100k;
  // special tokens, which have the lowest ids
  std::vector<std::string> special = {"<|endoftext|>"};
};

// Pieces of text, each with the number of its occurrences.
using PieceCounts = std::unordered_map<std::string, int64_t>;

// Counts the pieces into which the pattern splits a text.
void count_pieces(std::string_view text, tokenizer_internal::SplitPattern pattern,
                  PieceCounts& counts);

// Trains byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909) like Hugging Face's
// tokenizers. Ids are given first to special tokens, then to bytes in the order of the characters
// that represent them. Then the most frequent pair is merged, again and again; of equally frequent
// pairs, the one with lower ids. The result depends only on the counts.
//
// on_merge is called from time to time with the number of tokens; if it throws, the training ends.
// Throws ConfigError for a vocabulary that is too small for bytes and special tokens, or larger
// than 2^22. Also throws it for special tokens that are repeated, or are not at least two visible
// ASCII characters.
TokenizerSpec train_bpe(const PieceCounts& counts, const BpeTrainerOptions& options,
                        const std::function<void(int64_t tokens)>& on_merge = {});

}  // namespace shale
