#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/models/language/gguf.h"

namespace shale::models {
namespace {

// Token types of the GGUF format.
enum TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

GgufValues bpe(Tokens tokens, std::vector<std::string> merges, const std::string& splitting) {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", splitting},
          {"tokenizer.ggml.tokens", std::move(tokens.texts)},
          {"tokenizer.ggml.token_type", std::move(tokens.types)},
          {"tokenizer.ggml.merges", std::move(merges)},
          {"tokenizer.ggml.add_space_prefix", false}};
}

std::string in_alphabet(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += byte_alphabet()[static_cast<unsigned char>(c)];
  return text;
}

// Returns all tokens as text: byte-level tokens in GPT-2's alphabet, added tokens unchanged.
Tokens tokens_of(const TokenizerSpec& spec, int64_t vocab) {
  const auto size = static_cast<size_t>(vocab);
  Tokens tokens{.texts = std::vector<std::string>(size),
                .types = std::vector<int32_t>(size, kUnused)};
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) continue;
    tokens.texts[id] = spec.of_bytes ? in_alphabet(spec.tokens[id]) : spec.tokens[id];
    tokens.types[id] = kNormal;
  }
  for (const AddedToken& token : spec.added) {
    const auto id = static_cast<size_t>(token.id);
    tokens.texts[id] = token.text;
    tokens.types[id] = token.special ? kControl : kUserDefined;
  }
  for (size_t id = 0; id < size; ++id) {
    if (tokens.types[id] == kUnused) tokens.texts[id] = cat("[PAD", id, "]");
  }
  return tokens;
}

// Returns merges as "left right", in order of priority.
std::vector<std::string> merges_of(const TokenizerSpec& spec) {
  std::vector<MergeRule> rules = spec.merges;
  std::stable_sort(rules.begin(), rules.end(),
                   [](const MergeRule& a, const MergeRule& b) { return a.rank < b.rank; });
  const auto spelled = [&](int32_t id) {
    return in_alphabet(spec.tokens[static_cast<size_t>(id)]);
  };
  std::vector<std::string> merges;
  for (const MergeRule& rule : rules) {
    merges.push_back(cat(spelled(rule.left), " ", spelled(rule.right)));
  }
  return merges;
}

// Returns the scores of tokens; tokens of earlier merges have higher scores.
std::vector<float> scores_of(const TokenizerSpec& spec, size_t vocab) {
  std::vector<float> scores(vocab);
  std::vector<bool> is_scored(vocab);
  for (const MergeRule& rule : spec.merges) {
    const auto id = static_cast<size_t>(rule.result);
    const float score = -static_cast<float>(rule.rank) - 1;
    if (!is_scored[id] || score > scores[id]) scores[id] = score;
    is_scored[id] = true;
  }
  return scores;
}

// Returns the metadata of a SentencePiece tokenizer, which llama.cpp calls "llama".
GgufValues sentencepiece(Tokens tokens, const TokenizerSpec& spec) {
  for (size_t byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    const auto it = std::find(tokens.texts.begin(), tokens.texts.end(), name);
    if (it != tokens.texts.end()) {
      tokens.types[static_cast<size_t>(it - tokens.texts.begin())] = kByte;
    }
  }
  const bool has_prefix = std::any_of(
      spec.normalizer.begin(), spec.normalizer.end(),
      [](const NormalizeStep& step) { return std::holds_alternative<PrependStep>(step); });
  std::vector<float> scores = scores_of(spec, tokens.texts.size());
  GgufValues values = {{"tokenizer.ggml.model", "llama"},
                       {"tokenizer.ggml.pre", "default"},
                       {"tokenizer.ggml.scores", std::move(scores)},
                       {"tokenizer.ggml.add_space_prefix", has_prefix}};
  if (spec.unknown) {
    tokens.types[static_cast<size_t>(*spec.unknown)] = kUnknown;
    values.emplace_back("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*spec.unknown));
  }
  values.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  values.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
  return values;
}

// Returns true if the tokenizer replaces spaces by a visible character, and has no step that
// llama.cpp does not have.
bool is_sentencepiece(const TokenizerSpec& spec) {
  if (spec.of_bytes || !spec.byte_fallback || !spec.splits.empty()) return false;
  return std::all_of(spec.normalizer.begin(), spec.normalizer.end(), [](const auto& step) {
    const auto* prepend = std::get_if<PrependStep>(&step);
    const auto* replace = std::get_if<ReplaceStep>(&step);
    return (prepend != nullptr && prepend->text == "\u2581") ||
           (replace != nullptr && replace->from == " " && replace->to == "\u2581");
  });
}

// ---- Pre-tokenizers ----

std::string step_name(const SplitStep& step) {
  using tokenizer_internal::SplitPattern;
  if (const auto* split = std::get_if<PatternSplit>(&step)) {
    switch (split->pattern) {
      case SplitPattern::kGpt2: return "gpt2";
      case SplitPattern::kCl100k: return "cl100k";
      case SplitPattern::kQwen: return "qwen";
      case SplitPattern::kO200k: return "o200k";
    }
  }
  const auto* digits = std::get_if<DigitSplit>(&step);
  if (digits != nullptr) return digits->individual ? "digits" : "numbers";
  if (std::holds_alternative<PrefixSpace>(step)) return "prefix space";
  return std::holds_alternative<MetaspaceSplit>(step) ? "metaspace" : "literal";
}

// llama.cpp's names of pre-tokenizers (src/llama-vocab.cpp). The first entry with the tokenizer's
// steps counts.
struct Splitting {
  std::string_view steps;     // names of the steps, joined by " + "
  const char* name;           // value of tokenizer.ggml.pre
  bool whole_pieces = false;  // TokenizerSpec::whole_pieces; llama.cpp derives it from the name
};
constexpr Splitting kSplittings[] = {{"gpt2", "gpt-2"},   {"cl100k", "llama-bpe", true},
                                     {"cl100k", "dbrx"},  {"qwen", "qwen2"},
                                     {"o200k", "gpt-4o"}, {"digits + gpt2", "smollm"}};

// Returns true if merges of its own text produce every token. Then looking up a whole piece of text
// as a token first changes nothing.
bool merges_make_all(const TokenizerSpec& spec) {
  TokenizerSpec by_merges = spec, by_pieces = spec;
  by_merges.whole_pieces = false, by_pieces.whole_pieces = true;
  const Tokenizer merging(std::move(by_merges)), looking(std::move(by_pieces));
  TokenEncoder merged(merging), whole(looking);
  return std::all_of(spec.tokens.begin(), spec.tokens.end(), [&](const std::string& text) {
    return text.empty() || merged.encode(text) == whole.encode(text);
  });
}

const char* splitting_of(const TokenizerSpec& spec, const std::string& path) {
  for (const NormalizeStep& step : spec.normalizer) {
    if (std::holds_alternative<NfcStep>(step)) continue;
    throw DataError(cat(
        path,
        ": its normalizer changes text, which llama.cpp does not support; expected none or NFC"));
  }
  std::string steps, known;
  for (const SplitStep& step : spec.splits)
    steps += cat(steps.empty() ? "" : " + ", step_name(step));
  std::optional<bool> makes_all;
  for (const Splitting& row : kSplittings) {
    if (!known.ends_with(row.steps)) known += cat(known.empty() ? "" : ", ", row.steps);
    if (row.steps != steps) continue;
    if (row.whole_pieces == spec.whole_pieces) return row.name;
    if (!makes_all) makes_all = merges_make_all(spec);
    if (*makes_all) return row.name;
  }
  throw DataError(cat(path, ": splits text by ", steps.empty() ? "nothing" : steps,
                      spec.whole_pieces ? ", with ignore_merges" : "",
                      ", which llama.cpp does not support; expected one of ", known));
}

// Throws DataError for added tokens with flags that llama.cpp ignores: it would split text
// differently.
void check_added(const TokenizerSpec& spec, const std::string& path) {
  constexpr std::pair<const char*, bool AddedToken::*> kFlags[] = {
      {"lstrip", &AddedToken::lstrip},
      {"rstrip", &AddedToken::rstrip},
      {"single_word", &AddedToken::single_word}};
  for (const AddedToken& token : spec.added) {
    for (const auto& [name, flag] : kFlags) {
      if (!(token.*flag)) continue;
      throw DataError(cat(path, ": the added token '", token.text, "' has ", name,
                          ", expected none, as GGUF files cannot store it"));
    }
  }
}

// ---- Special tokens ----

void add_special(const StoredTokenizer& stored, const HfExtras& extras, GgufValues& values) {
  const TokenizerSpec& spec = stored.tokenizer.spec();
  const SpecialTokens special = special_tokens(extras, &stored);
  if (special.ends.empty()) {
    throw DataError(
        cat(stored.path,
            ": no end-of-text token found; set eos_token in a tokenizer_config.json beside it"));
  }
  if (spec.before.size() > 1 || spec.behind.size() > 1 ||
      (spec.behind.size() == 1 && spec.behind[0] != special.ends[0])) {
    throw DataError(cat(
        stored.path, ": puts ", spec.before.size(), " tokens before a text and ",
        spec.behind.size(),
        " after it; llama.cpp supports at most one before it, and the end-of-text token after it"));
  }
  const auto add = [&](const char* name, int64_t id) {
    if (!stored.tokenizer.has(static_cast<int32_t>(id))) {
      throw DataError(cat(stored.path, ": expected a token with the id ", id, ", the ", name,
                          "_token_id of the model's files, found none"));
    }
    values.emplace_back(cat("tokenizer.ggml.", name, "_token_id"), static_cast<uint32_t>(id));
  };
  add("bos", spec.before.empty() ? special.begin.value_or(special.ends[0]) : spec.before[0]);
  if (special.pad) add("padding", *special.pad);
  // llama.cpp ends a text at any token that one of these keys names.
  constexpr const char* kEnds[] = {"eos", "eot", "eom"};
  for (size_t i = 0; i < special.ends.size(); ++i) {
    if (i == std::size(kEnds)) {
      log_warning("gguf: a file can store 3 end-of-text tokens; left out: token ", special.ends[i]);
      break;
    }
    add(kEnds[i], special.ends[i]);
  }
  values.emplace_back("tokenizer.ggml.add_bos_token", !spec.before.empty());
  values.emplace_back("tokenizer.ggml.add_eos_token", !spec.behind.empty());
  std::vector<std::string> others;
  for (const auto& [name, text] : chat_templates(extras)) {
    const bool is_default = name == "default";
    values.emplace_back(cat("tokenizer.chat_template", is_default ? "" : "." + name), text);
    if (!is_default) others.push_back(name);
  }
  if (!others.empty()) values.emplace_back("tokenizer.chat_templates", std::move(others));
}

}  // namespace

GgufValues gguf_byte_tokenizer() {
  GgufValues values =
      bpe({.texts = byte_alphabet(), .types = std::vector<int32_t>(256, kNormal)}, {}, "gpt-2");
  values.emplace_back("tokenizer.ggml.bos_token_id", uint32_t{0});
  values.emplace_back("tokenizer.ggml.eos_token_id", uint32_t{0});
  values.emplace_back("tokenizer.ggml.add_bos_token", false);
  return values;
}

GgufValues gguf_tokenizer(const StoredTokenizer& stored, int64_t vocab, const HfExtras& extras) {
  const int64_t size = stored.tokenizer.vocab_size();
  if (size > vocab) {
    throw DataError(
        cat(stored.path, ": ", size, " tokens, expected at most ", vocab, " as in the model"));
  }
  const TokenizerSpec& spec = stored.tokenizer.spec();
  if (!spec.of_bytes && !is_sentencepiece(spec)) {
    throw DataError(
        cat(stored.path,
            ": expected byte-level BPE or SentencePiece with byte fallback, which GGUF supports"));
  }
  check_added(spec, stored.path);
  Tokens tokens = tokens_of(spec, vocab);
  GgufValues values = spec.of_bytes
                          ? bpe(std::move(tokens), merges_of(spec), splitting_of(spec, stored.path))
                          : sentencepiece(std::move(tokens), spec);
  add_special(stored, extras, values);
  return values;
}

}  // namespace shale::models
