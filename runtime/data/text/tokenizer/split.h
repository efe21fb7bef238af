#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace shale::tokenizer_internal {

// Scanners for the regular expressions with which published tokenizers split text before BPE. Each
// finds a piece in one pass, for any text.
enum class SplitPattern {
  kGpt2,    // also GPT-NeoX
  kCl100k,  // also Llama 3, OLMo 2: contractions in any case, numbers of up to 3 digits
  kQwen,    // kCl100k with single digits
  kO200k,   // splits letters by case
};

// The scanner for a regular expression as spelled in tokenizer.json; nullopt if unknown.
std::optional<SplitPattern> find_pattern(std::string_view regex);
// The spelling in tokenizer.json of such tokenizers.
std::string_view regex_of(SplitPattern pattern);

// End of the piece that begins at `begin` < text.size(). Pieces cover the whole text. Text should
// be UTF-8; an invalid byte counts as a symbol. Does not look beyond text.size(): the expression
// sees the end of the text there.
size_t piece_end(SplitPattern pattern, std::string_view text, size_t begin);

// First position at or after `from` where every pattern ends a piece, and where the preceding
// pieces would be the same if the text ended there: after a line's end, before a letter. There must
// be visible text before the line's end, because GPT-2's expression takes all spaces at the end of
// a text together. The text's size if there is none.
size_t find_line_cut(std::string_view text, size_t from);

}  // namespace shale::tokenizer_internal
