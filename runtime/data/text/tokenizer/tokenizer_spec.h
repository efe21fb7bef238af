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

// A token that is cut from text before the text is split and merged.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = true;       // not part of ordinary text: cut and shown only on request
  bool normalized = false;   // matched after normalisation
  bool single_word = false;  // does not match inside a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it

  bool operator==(const AddedToken&) const = default;
};

// Normalization steps, applied before splitting.
struct NfcStep {  // Unicode's Normalization Form C
  bool operator==(const NfcStep&) const = default;
};
struct PrependStep {
  std::string text;  // prepended to non-empty texts

  bool operator==(const PrependStep&) const = default;
};
struct ReplaceStep {
  std::string from, to;

  bool operator==(const ReplaceStep&) const = default;
};
using NormalizeStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

// How a match is combined with its neighbours; names as in tokenizer.json.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Steps that divide text into pieces; merges do not cross pieces. Each step divides the pieces of
// the previous one.
struct PatternSplit {
  tokenizer_internal::SplitPattern pattern;

  bool operator==(const PatternSplit&) const = default;
};
struct LiteralSplit {
  std::string literal;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // everything except the literal matches

  bool operator==(const LiteralSplit&) const = default;
};
struct DigitSplit {
  bool individual = false;  // false: runs of digits

  bool operator==(const DigitSplit&) const = default;
};
struct MetaspaceSplit {  // SentencePiece's method: replaces spaces by a visible character
  std::string replacement;
  enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool split = true;  // split before each replacement

  bool operator==(const MetaspaceSplit&) const = default;
};
struct PrefixSpace {  // inserted before a piece that does not begin with a space
  bool operator==(const PrefixSpace&) const = default;
};
using SplitStep = std::variant<PatternSplit, LiteralSplit, DigitSplit, MetaspaceSplit, PrefixSpace>;

// A merge of two tokens. Merges of equal rank are applied from left to right.
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
  uint32_t rank = 0;

  bool operator==(const MergeRule&) const = default;
};

// Complete description of a tokenizer.
struct TokenizerSpec {
  std::string source;  // file name for messages
  // True: merging starts with bytes; false: with UTF-8 characters.
  bool of_bytes = true;
  // By id: the bytes of a byte-level token, independent of the file's spelling; empty: no token.
  std::vector<std::string> tokens;
  std::vector<MergeRule> merges;
  bool whole_pieces = false;   // a piece that is a token is encoded as it, ignoring merges
  bool byte_fallback = false;  // characters without a token are encoded as "<0x00>" to "<0xFF>"
  bool fuse_unknown = false;   // consecutive characters without a token become one unknown token
  std::optional<int32_t> unknown;
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalizer;
  std::vector<SplitStep> splits;
  // Tokens around a text, if special tokens are requested.
  std::vector<int32_t> before, behind;
  // Decoding: replacements within tokens; true if "<0x41>" is a byte; `strip` is removed up to
  // strip_most times from the start of a text.
  std::vector<ReplaceStep> decoded;
  bool decodes_bytes = false;
  std::string strip;
  int64_t strip_most = 0;

  bool operator==(const TokenizerSpec&) const = default;
};

// Maximum size of a tokenizer file, for reading and writing.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Appends a merge found by dividing tokens. There may be very many: throws DataError beyond 2^24.
// The largest published vocabularies have a million.
void add_merge(TokenizerSpec& spec, const MergeRule& merge);

// GPT-2's byte alphabet: the character for each byte. Printable Latin-1 bytes represent themselves;
// other bytes use the characters from U+0100 on, in order.
const std::vector<std::string>& byte_alphabet();
// Bytes of a text in that alphabet; nullopt if it contains another character.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

// Parse BPE tokenizers in Hugging Face's format. Both throw DataError, which begins with the
// source, with the key that is missing, malformed or of an unknown kind.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& source);
TokenizerSpec read_tokenizer_json(const std::string& path);

// Parses tiktoken's format: per line the base64 of a token's bytes and its rank. Tokens merge if
// their concatenation is a token. Throws like parse_tokenizer_json().
TokenizerSpec parse_tiktoken(std::string_view text, tokenizer_internal::SplitPattern pattern,
                             std::vector<AddedToken> added, const std::string& source);

}  // namespace shale
