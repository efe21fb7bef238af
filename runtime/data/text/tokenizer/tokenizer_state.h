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

// Returns true if text can be tokenized in parts, cut at the positions that find_cut() returns.
bool can_cut_at_lines(const TokenizerSpec& spec);

}  // namespace tokenizer_internal

// Lookup tables of encoders and decoders.
struct Tokenizer::State {
  explicit State(TokenizerSpec spec_of_file);
  State(const State&) = delete;  // not copyable, because members point to the spec

  // Appends the tokens of a piece before any merge: those of its bytes or characters.
  void append_symbols(std::string_view piece, std::vector<int32_t>& out) const;

  TokenizerSpec spec;
  tokenizer_internal::Vocabulary vocabulary;
  tokenizer_internal::MergeTable merges;
  tokenizer_internal::Splitter splitter;
  tokenizer_internal::AddedTokens raw_added;  // tokens that are searched in the original text
  tokenizer_internal::AddedTokens normalized_added;  // tokens that are searched in normalized text
  // Token of each byte, or of "<0x00>" to "<0xFF>"; kNone: no token.
  std::array<int32_t, 256> byte_tokens{};
  std::vector<bool> is_whole;      // by id: true if a piece equal to this token needs no merges
  std::vector<std::string> shown;  // by id: text that decoding shows
  std::vector<bool> is_special;    // by id: true if the token is special
  std::vector<bool> exists;        // by id: true if a token has this id
  bool cuts_at_lines = false;      // true: Tokenizer::find_cut() can find positions

 private:
  void fill_byte_tokens();
  void fill_merges();
  void fill_whole();
  void fill_shown();
  std::string shown_text(const std::string& token) const;
};

}  // namespace shale
