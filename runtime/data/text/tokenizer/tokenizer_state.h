#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "shale/runtime/data/text/tokenizer/added_tokens.h"
#include "shale/runtime/data/text/tokenizer/pieces.h"
#include "shale/runtime/data/text/tokenizer/tokenizer.h"
#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale {

namespace tokenizer_internal {

// True if text can be tokenized in parts that are divided at the cuts of find_cut().
bool can_cut_at_lines(const TokenizerSpec& spec);

}  // namespace tokenizer_internal

// Lookup tables of encoders and decoders.
struct Tokenizer::State {
  explicit State(TokenizerSpec spec_of_file);
  State(const State&) = delete;  // not copyable: members point to the spec

  // Appends the initial tokens for merging a piece.
  void append_symbols(std::string_view piece, std::vector<int32_t>& out) const;

  TokenizerSpec spec;
  tokenizer_internal::Vocabulary vocabulary;
  tokenizer_internal::MergeTable merges;
  tokenizer_internal::Splitter splitter;
  tokenizer_internal::AddedTokens raw_added;         // matched before normalisation
  tokenizer_internal::AddedTokens normalized_added;  // matched after normalisation
  // Tokens of bytes, or "<0x00>" to "<0xFF>"; or kNone.
  std::array<int32_t, 256> byte_tokens{};
  std::vector<bool> is_whole;      // by id: a piece with these bytes is encoded as this token
  std::vector<std::string> shown;  // by id: decoded text
  std::vector<bool> is_special;    // by id
  std::vector<bool> exists;        // by id
  bool cuts_at_lines = false;      // true if Tokenizer::find_cut() can find cuts

 private:
  void fill_byte_tokens();
  void fill_merges();
  void fill_whole();
  void fill_shown();
  std::string shown_text(const std::string& token) const;
};

}  // namespace shale
