#include "shale/runtime/data/text/tokenizer/tokenizer_state.h"

#include <algorithm>
#include <charconv>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/bpe.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale {
namespace {

using namespace tokenizer_internal;

constexpr int32_t kNone = Vocabulary::kNone;

// Returns the added tokens that are searched in normalized text, or those that are searched in the
// original text, spelled as they occur there.
std::vector<AddedToken> added_of(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : spec.added) {
    if (token.normalized != normalized) continue;
    if (normalized) {
      std::string text;
      append_normalized(spec.normalizer, token.text, text);
      token.text = std::move(text);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::string fallback_name(size_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return cat("<0x", kDigits[byte / 16], kDigits[byte % 16], ">");
}

}  // namespace

Tokenizer::State::State(TokenizerSpec spec_of_file)
    : spec(std::move(spec_of_file)),
      vocabulary(spec.tokens),
      merges(spec.merges.size()),
      splitter(spec.splits),
      raw_added(added_of(spec, false)),
      normalized_added(added_of(spec, true)) {
  fill_byte_tokens();
  fill_merges();
  fill_whole();
  fill_shown();
  cuts_at_lines = can_cut_at_lines(spec);
  const auto known = static_cast<int64_t>(exists.size());
  for (const auto* ids : {&spec.before, &spec.behind}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= known || !exists[static_cast<size_t>(id)]) {
        throw DataError(cat(spec.source, ": the template has the id ", id, ", which no token has"));
      }
    }
  }
}

void Tokenizer::State::fill_byte_tokens() {
  byte_tokens.fill(kNone);
  if (!spec.of_bytes && !spec.byte_fallback) return;
  for (size_t b = 0; b < byte_tokens.size(); ++b) {
    const std::string name =
        spec.of_bytes ? std::string(1, static_cast<char>(b)) : fallback_name(b);
    byte_tokens[b] = vocabulary.find(name);
    if (byte_tokens[b] == kNone) {
      throw DataError(cat(spec.source, ": no token for the byte ", fallback_name(b),
                          ", expected one token for each byte"));
    }
  }
}

void Tokenizer::State::fill_merges() {
  const auto tokens = static_cast<int32_t>(spec.tokens.size());
  for (const MergeRule& rule : spec.merges) {
    for (const int32_t id : {rule.left, rule.right, rule.result}) {
      if (id < 0 || id >= tokens) {
        throw DataError(cat(spec.source, ": a merge has the id ", id, ", which no token has"));
      }
    }
    // If a pair has several rules, the first one counts.
    merges.add(rule.left, rule.right, {rule.rank, rule.result});
  }
}

void Tokenizer::State::fill_whole() {
  is_whole.assign(spec.tokens.size(), spec.whole_pieces);
  if (spec.whole_pieces) return;
  BpeMerger merger(merges);
  std::vector<int32_t> symbols, merged;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (vocabulary.find(spec.tokens[id]) != static_cast<int32_t>(id)) continue;
    symbols.clear();
    merged.clear();
    // Skips a token whose characters are not all tokens. Merges cannot make it, but it may be an
    // added token.
    try {
      append_symbols(spec.tokens[id], symbols);
    } catch (const DataError&) {
      continue;
    }
    merger.append(symbols, merged);
    is_whole[id] = merged.size() == 1 && merged[0] == static_cast<int32_t>(id);
  }
}

void Tokenizer::State::append_symbols(std::string_view piece, std::vector<int32_t>& out) const {
  if (spec.of_bytes) {
    for (const char c : piece) out.push_back(byte_tokens[static_cast<unsigned char>(c)]);
    return;
  }
  bool was_unknown = false;
  for (const char *at = piece.data(), *end = at + piece.size(); at != end;) {
    const std::string_view character(at, decode_utf8(at, end).bytes);
    at += character.size();
    const int32_t id = vocabulary.find(character);
    const bool is_unknown = id == kNone && !spec.byte_fallback;
    if (id != kNone) {
      out.push_back(id);
    } else if (spec.byte_fallback) {
      for (const char c : character) out.push_back(byte_tokens[static_cast<unsigned char>(c)]);
    } else if (!spec.unknown) {
      throw DataError(cat(spec.source, ": no token for '", excerpt(character), "'"));
    } else if (!spec.fuse_unknown || !was_unknown) {
      out.push_back(*spec.unknown);
    }
    was_unknown = is_unknown;
  }
}

std::string Tokenizer::State::shown_text(const std::string& token) const {
  if (spec.of_bytes) return token;
  unsigned byte = 0;
  const bool is_byte =
      spec.decodes_bytes && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
      std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
  if (is_byte) return {static_cast<char>(byte)};
  const std::vector<NormalizeStep> steps(spec.decoded.begin(), spec.decoded.end());
  std::string text;
  append_normalized(steps, token, text);
  return text;
}

void Tokenizer::State::fill_shown() {
  int64_t size = vocabulary.size();
  for (const AddedToken& token : spec.added) size = std::max<int64_t>(size, token.id + 1);
  shown.resize(static_cast<size_t>(size));
  is_special.resize(shown.size());
  exists.resize(shown.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    shown[id] = shown_text(spec.tokens[id]);
    exists[id] = !spec.tokens[id].empty();
  }
  for (const AddedToken& token : spec.added) {
    const auto id = static_cast<size_t>(token.id);
    shown[id] = token.text;
    exists[id] = true;
    is_special[id] = token.special;
  }
}

}  // namespace shale
