#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shale/runtime/data/text/tokenizer/split.h"

namespace shale {

// A token that is found in text and cut out before the text is split and merged.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = true;       // true: not part of ordinary text; encoded and decoded only on request
  bool normalized = false;   // true: searched in normalized text; false: in the original text
  bool single_word = false;  // true: does not match inside a word
  bool lstrip = false;       // true: also removes the white space before it
  bool rstrip = false;       // true: also removes the white space after it

  bool operator==(const AddedToken&) const = default;
};

// Steps that normalize text before it is split.
struct NfcStep {  // converts to Unicode's Normalization Form C
  bool operator==(const NfcStep&) const = default;
};
struct PrependStep {
  std::string text;  // text that is put before every text that is not empty

  bool operator==(const PrependStep&) const = default;
};
struct ReplaceStep {
  std::string from, to;

  bool operator==(const ReplaceStep&) const = default;
};
using NormalizeStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

// Says how a match is combined with its neighbours. The names are those in tokenizer.json.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Steps that split text into pieces. Each step splits the pieces of the previous one. Tokens are
// merged only within a piece.
struct PatternSplit {
  tokenizer_internal::SplitPattern pattern;

  bool operator==(const PatternSplit&) const = default;
};
struct LiteralSplit {
  std::string literal;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // true: matches everything except the literal

  bool operator==(const LiteralSplit&) const = default;
};
struct DigitSplit {
  bool individual = false;  // true: each digit is a piece; false: each run of digits is a piece

  bool operator==(const DigitSplit&) const = default;
};
struct MetaspaceSplit {  // SentencePiece's method: replaces spaces by a visible character
  std::string replacement;
  enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool split = true;  // true: begins a new piece at each replacement

  bool operator==(const MetaspaceSplit&) const = default;
};
struct PrefixSpace {  // adds a space before a piece that does not begin with one
  bool operator==(const PrefixSpace&) const = default;
};
using SplitStep = std::variant<PatternSplit, LiteralSplit, DigitSplit, MetaspaceSplit, PrefixSpace>;

// A merge of two tokens. Merges with lower rank come first; those of equal rank are applied from
// left to right.
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
  uint32_t rank = 0;

  bool operator==(const MergeRule&) const = default;
};

// Complete description of a tokenizer.
struct TokenizerSpec {
  std::string source;  // name of the file, for error messages
  // True: merging starts with bytes; false: with UTF-8 characters.
  bool of_bytes = true;
  // Bytes of each token, by id, after decoding the spelling in the file. Empty: no token has this
  // id.
  std::vector<std::string> tokens;
  std::vector<MergeRule> merges;
  // true: a piece that equals a token is encoded as that token, ignoring merges
  bool whole_pieces = false;
  // true: encodes the bytes of characters without a token as "<0x00>" to "<0xFF>"
  bool byte_fallback = false;
  // true: consecutive characters without a token become one unknown token
  bool fuse_unknown = false;
  std::optional<int32_t> unknown;
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalizer;
  std::vector<SplitStep> splits;
  // Tokens to add before and after a text, if the caller requests them.
  std::vector<int32_t> before, behind;
  // Decoding. decoded: replacements within tokens. decodes_bytes: a token "<0x41>" means a byte.
  // strip: removed from the start of the text, up to strip_most times.
  std::vector<ReplaceStep> decoded;
  bool decodes_bytes = false;
  std::string strip;
  int64_t strip_most = 0;

  bool operator==(const TokenizerSpec&) const = default;
};

// Maximum bytes of a tokenizer file that is read or written.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Appends a merge that was found by dividing a token in two. Throws DataError for more than 2^24
// merges; the largest published vocabularies have a million.
void add_merge(TokenizerSpec& spec, const MergeRule& merge);

// Returns GPT-2's byte alphabet, the character that represents each byte. Printable Latin-1 bytes
// represent themselves. Other bytes are represented by the characters from U+0100 on, in order.
const std::vector<std::string>& byte_alphabet();
// Converts a text in the byte alphabet to bytes. Returns nullopt if it contains another character.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

// Parse BPE tokenizers in Hugging Face's format. Throw DataError, which begins with `source` and
// names the key, if a key is missing, malformed or of an unknown kind.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& source);
TokenizerSpec read_tokenizer_json(const std::string& path);

// Parses tiktoken's format: each line has the base64 of a token's bytes, and its rank. Tokens merge
// if their concatenation is a token. Throws like parse_tokenizer_json().
TokenizerSpec parse_tiktoken(std::string_view text, tokenizer_internal::SplitPattern pattern,
                             std::vector<AddedToken> added, const std::string& source);

}  // namespace shale
