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

// A token that is cut from text as it stands, before the text is split and merged.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = true;       // not part of what people write: cut, and shown, on request only
  bool normalized = false;   // looked for after normalisation
  bool single_word = false;  // not where a word goes on before or behind it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it

  bool operator==(const AddedToken&) const = default;
};

// What happens to text before it is split.
struct NfcStep {  // Unicode's Normalization Form C
  bool operator==(const NfcStep&) const = default;
};
struct PrependStep {
  std::string text;  // in front of texts that are not empty

  bool operator==(const PrependStep&) const = default;
};
struct ReplaceStep {
  std::string from, to;

  bool operator==(const ReplaceStep&) const = default;
};
using NormalizeStep = std::variant<NfcStep, PrependStep, ReplaceStep>;

// How a match goes with its neighbours, in the words of tokenizer.json.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// How text is divided into pieces, across which nothing merges. Each step divides the pieces of the
// one before.
struct PatternSplit {
  tokenizer_internal::SplitPattern pattern;

  bool operator==(const PatternSplit&) const = default;
};
struct LiteralSplit {
  std::string literal;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what is not the literal matches

  bool operator==(const LiteralSplit&) const = default;
};
struct DigitSplit {
  bool individual = false;  // else runs of them

  bool operator==(const DigitSplit&) const = default;
};
struct MetaspaceSplit {  // SentencePiece's way: a space becomes a visible character
  std::string replacement;
  enum class Prepend { kNever, kFirst, kAlways } prepend = Prepend::kAlways;
  bool split = true;  // before each

  bool operator==(const MetaspaceSplit&) const = default;
};
struct PrefixSpace {  // in front of a piece that does not begin with one
  bool operator==(const PrefixSpace&) const = default;
};
using SplitStep = std::variant<PatternSplit, LiteralSplit, DigitSplit, MetaspaceSplit, PrefixSpace>;

// A merge of two tokens. Those with equal rank are equal but for their place in the text.
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
  uint32_t rank = 0;

  bool operator==(const MergeRule&) const = default;
};

// All that a tokenizer is, as its file says.
struct TokenizerSpec {
  std::string source;  // the file, for messages
  // Whether merging begins with bytes; else with characters of UTF-8.
  bool of_bytes = true;
  // By id. Bytes of a byte-level token, whatever its file spells them as; an empty one is no token.
  std::vector<std::string> tokens;
  std::vector<MergeRule> merges;
  bool whole_pieces = false;   // a piece that is a token becomes it, whatever the merges say
  bool byte_fallback = false;  // a character that is no token becomes tokens "<0x00>" to "<0xFF>"
  bool fuse_unknown = false;   // neighbours that are no tokens become one unknown token
  std::optional<int32_t> unknown;
  std::vector<AddedToken> added;
  std::vector<NormalizeStep> normalizer;
  std::vector<SplitStep> splits;
  // Around a text, where special tokens are asked for.
  std::vector<int32_t> before, behind;
  // What decoding puts for a part of a token; whether "<0x41>" is a byte; so many of these
  // characters at the start of a text are not shown.
  std::vector<ReplaceStep> decoded;
  bool decodes_bytes = false;
  std::string strip;
  int64_t strip_most = 0;

  bool operator==(const TokenizerSpec&) const = default;
};

// The largest file of a tokenizer that is read, and so the largest that is written.
inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

// Appends a merge that was found by cutting tokens in two, of which there may be very many: throws
// DataError beyond 2^24. The largest published vocabularies have a million.
void add_merge(TokenizerSpec& spec, const MergeRule& merge);

// GPT-2's alphabet: the character that stands for each byte. Printable bytes of Latin-1 stand for
// themselves, the others are the characters from U+0100 on, in order.
const std::vector<std::string>& byte_alphabet();
// The bytes that a text of that alphabet stands for; none if it has another character.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

// Reads what Hugging Face's tokenizers write, of BPE. Both throw DataError, starting with the
// source, that names the key which is missing, malformed or of a kind that is not known.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& source);
TokenizerSpec read_tokenizer_json(const std::string& path);

// Reads tiktoken's files: a line for each token, base64 of its bytes and its rank. Tokens merge
// where together they are a token. Throws as above.
TokenizerSpec parse_tiktoken(std::string_view text, tokenizer_internal::SplitPattern pattern,
                             std::vector<AddedToken> added, const std::string& source);

}  // namespace shale
