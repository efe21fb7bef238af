#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace shale::tokenizer_internal {

// Regular expressions with which published tokenizers split text before BPE. A scanner implements
// each of them and finds a piece in one pass, for any text.
enum class SplitPattern {
  kGpt2,    // GPT-2 and GPT-NeoX
  kCl100k,  // cl100k, Llama 3 and OLMo 2: contractions in any case, numbers of up to 3 digits
  kQwen,    // like kCl100k, but each digit is a piece
  kO200k,   // splits words where the case changes
};

// Returns the pattern that implements a regular expression of a tokenizer.json; nullopt if there is
// none.
std::optional<SplitPattern> find_pattern(std::string_view regex);
// Returns the regular expression of a pattern, spelled as in tokenizer.json.
std::string_view regex_of(SplitPattern pattern);

// Returns the end of the piece that begins at `begin`, which is below text.size(). Pieces cover the
// whole text. Text should be UTF-8; an invalid byte counts as a symbol. For the expression, the
// text ends at text.size().
size_t piece_end(SplitPattern pattern, std::string_view text, size_t begin);

// Returns the first position at or after `from` where text can be cut without changing the pieces
// of any pattern, also those before the cut. Such a position is after a line's end and before a
// letter. There must be visible text before the line's end, because GPT-2's expression takes all
// spaces at the end of a text together. Returns the text's size if there is no such position.
size_t find_line_cut(std::string_view text, size_t from);

}  // namespace shale::tokenizer_internal
