#include <algorithm>
#include <charconv>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"
#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale {
namespace {

using tokenizer_internal::kMaxTokens;

// Maximum bytes of a token, because every way to divide it in two is tried.
constexpr size_t kMaxTokenBytes = 4096;

// Returns the value of a base64 digit (RFC 4648, section 4); -1: not a digit.
int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return {};
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string out;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = digit(text[i]);
    if (value < 0) return {};
    bits = bits << 6 | static_cast<uint32_t>(value);
    // In each group of four digits, digits 2, 3 and 4 each complete a byte.
    if (i % 4 != 0) out += static_cast<char>(bits >> (6 - 2 * (i % 4)));
  }
  return out;
}

void read_line(std::string_view line, const std::string& place, TokenizerSpec& spec) {
  const size_t space = line.find(' ');
  int32_t rank = -1;
  std::optional<std::string> token;
  if (space != line.npos) {
    token = decode_base64(line.substr(0, space));
    const char* const end = line.data() + line.size();
    const auto read = std::from_chars(line.data() + space + 1, end, rank);
    if (read.ec != std::errc{} || read.ptr != end) rank = -1;
  }
  if (!token || token->size() > kMaxTokenBytes || rank < 0 || rank >= kMaxTokens) {
    throw DataError(cat(place, ": '", excerpt(line, 60), "', expected base64 of at most ",
                        kMaxTokenBytes, " bytes, and a rank from 0 to ", kMaxTokens - 1));
  }
  const auto id = static_cast<size_t>(rank);
  if (spec.tokens.size() <= id) spec.tokens.resize(id + 1);
  if (!spec.tokens[id].empty())
    throw DataError(cat(place, ": rank ", rank, " occurs twice, expected each rank once"));
  spec.tokens[id] = std::move(*token);
}

// Finds the merges: two tokens merge if their concatenation is a token. The rank of that token is
// the rank of the merge.
void find_merges(TokenizerSpec& spec) {
  const tokenizer_internal::Vocabulary vocabulary(spec.tokens);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view token = spec.tokens[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const int32_t left = vocabulary.find(token.substr(0, cut));
      if (left == vocabulary.kNone) continue;
      const int32_t right = vocabulary.find(token.substr(cut));
      if (right == vocabulary.kNone) continue;
      add_merge(spec, {left, right, static_cast<int32_t>(id), static_cast<uint32_t>(id)});
    }
  }
}

}  // namespace

void add_merge(TokenizerSpec& spec, const MergeRule& merge) {
  constexpr size_t kMostMerges = size_t{1} << 24;
  if (spec.merges.size() == kMostMerges) {
    throw DataError(cat(spec.source, ": tokens merge from pairs of other tokens in more than ",
                        kMostMerges, " ways; expected a BPE vocabulary with shorter tokens"));
  }
  spec.merges.push_back(merge);
}

TokenizerSpec parse_tiktoken(std::string_view text, tokenizer_internal::SplitPattern pattern,
                             std::vector<AddedToken> added, const std::string& source) {
  TokenizerSpec spec{.source = source, .whole_pieces = true, .added = std::move(added)};
  spec.splits.emplace_back(PatternSplit{pattern});
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    ++number;
    if (!line.empty()) read_line(line, cat(source, ":", number), spec);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  find_merges(spec);
  return spec;
}

}  // namespace shale
