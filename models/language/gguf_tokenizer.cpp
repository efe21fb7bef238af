#include <algorithm>
#include <cstdio>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/language/gguf.h"

namespace shale::models {
namespace {

// The format's numbers.
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
  std::vector<std::string> merges = {};
  uint32_t end = 0;  // of a text
};

GgufValues bpe(Tokens tokens, const std::string& splitting) {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", splitting},
          {"tokenizer.ggml.tokens", std::move(tokens.texts)},
          {"tokenizer.ggml.token_type", std::move(tokens.types)},
          {"tokenizer.ggml.merges", std::move(tokens.merges)},
          {"tokenizer.ggml.bos_token_id", tokens.end},
          {"tokenizer.ggml.eos_token_id", tokens.end},
          {"tokenizer.ggml.add_bos_token", false}};
}

std::string in_alphabet(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += byte_alphabet()[static_cast<unsigned char>(c)];
  return text;
}

// Every token, those of bytes in their alphabet; added ones as people write them.
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

// "left right" in the order in which they are merged.
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

// What merges first has the highest score.
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

// SentencePiece's, which llama.cpp calls after Llama's.
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
  const auto begin = spec.before.empty() ? tokens.end : static_cast<uint32_t>(spec.before[0]);
  std::vector<float> scores = scores_of(spec, tokens.texts.size());
  GgufValues values = {{"tokenizer.ggml.model", "llama"},
                       {"tokenizer.ggml.pre", "default"},
                       {"tokenizer.ggml.scores", std::move(scores)},
                       {"tokenizer.ggml.bos_token_id", begin},
                       {"tokenizer.ggml.eos_token_id", tokens.end},
                       {"tokenizer.ggml.add_bos_token", !spec.before.empty()},
                       {"tokenizer.ggml.add_space_prefix", has_prefix}};
  if (spec.unknown) {
    tokens.types[static_cast<size_t>(*spec.unknown)] = kUnknown;
    values.emplace_back("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(*spec.unknown));
  }
  values.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  values.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
  return values;
}

// A visible space for each space, and nothing else that llama.cpp would not do.
bool is_sentencepiece(const TokenizerSpec& spec) {
  if (spec.of_bytes || !spec.byte_fallback || !spec.splits.empty()) return false;
  return std::all_of(spec.normalizer.begin(), spec.normalizer.end(), [](const auto& step) {
    const auto* prepend = std::get_if<PrependStep>(&step);
    const auto* replace = std::get_if<ReplaceStep>(&step);
    return (prepend != nullptr && prepend->text == "\u2581") ||
           (replace != nullptr && replace->from == " " && replace->to == "\u2581");
  });
}

}  // namespace

GgufValues gguf_byte_tokenizer() {
  return bpe({.texts = byte_alphabet(), .types = std::vector<int32_t>(256, kNormal)}, "gpt-2");
}

GgufValues gguf_tokenizer(const StoredTokenizer& stored, int64_t vocab,
                          const std::string& splitting) {
  const int64_t size = stored.tokenizer.vocab_size();
  if (size > vocab) {
    throw DataError(
        cat(stored.path, ": ", size, " tokens, want at most ", vocab, ", as the model has"));
  }
  const TokenizerSpec& spec = stored.tokenizer.spec();
  if (!spec.of_bytes && !is_sentencepiece(spec)) {
    throw DataError(cat(stored.path,
                        ": neither byte-level BPE nor SentencePiece's with byte fallback, which "
                        "GGUF files are written of"));
  }
  if (!stored.end_of_document) {
    throw DataError(cat(stored.path,
                        ": none of its tokens ends a document, want one of "
                        "<|endoftext|>, <|end_of_text|>, </s>, <eos>"));
  }
  Tokens tokens = tokens_of(spec, vocab);
  tokens.end = static_cast<uint32_t>(*stored.end_of_document);
  if (spec.of_bytes) tokens.merges = merges_of(spec);
  GgufValues values =
      spec.of_bytes ? bpe(std::move(tokens), splitting) : sentencepiece(std::move(tokens), spec);
  if (const Json* chat = stored.chat.find("chat_template")) {
    values.emplace_back("tokenizer.chat_template", chat->text());
  }
  return values;
}

}  // namespace shale::models
