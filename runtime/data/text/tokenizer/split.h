#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace shale::tokenizer_internal {

// The regular expressions by which published tokenizers divide text before BPE, as scanners: a
// piece is found in one pass over it, whatever the text.
enum class SplitPattern {
  kGpt2,    // and GPT-NeoX
  kCl100k,  // and Llama 3, OLMo 2: contractions in any case, numbers of up to 3 digits
  kQwen,    // the same with digits one by one
  kO200k,   // letters by case
};

// The scanner for a regular expression as tokenizer.json spells it; none if it is not known.
std::optional<SplitPattern> find_pattern(std::string_view regex);
// The spelling that tokenizer.json of such tokenizers has.
std::string_view regex_of(SplitPattern pattern);

// The end of the piece that begins at `begin` < text.size(). Pieces cover the text. Text is UTF-8;
// a byte that is not counts as a symbol. What follows text.size() is never looked at: the end of
// the text is where the expression sees it.
size_t piece_end(SplitPattern pattern, std::string_view text, size_t begin);

// The first place at or behind `from` where each pattern ends a piece, and has the same pieces
// before it if the text ends there: behind a line's end, before a letter. Something visible is
// before the line's end: GPT-2's expression takes all spaces at the end of a text together. The
// text's size if there is none.
size_t find_line_cut(std::string_view text, size_t from);

}  // namespace shale::tokenizer_internal
