#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/language/gguf.h"

namespace shale::models {
namespace {

// The format's numbers.
enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

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

// Every token in the alphabet of bytes; added ones as people write them.
Tokens tokens_of(const TokenizerSpec& spec, int64_t vocab) {
  const auto size = static_cast<size_t>(vocab);
  Tokens tokens{.texts = std::vector<std::string>(size),
                .types = std::vector<int32_t>(size, kUnused)};
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) continue;
    tokens.texts[id] = in_alphabet(spec.tokens[id]);
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
  std::vector<MergeRule> merges = spec.merges;
  std::stable_sort(merges.begin(), merges.end(),
                   [](const MergeRule& a, const MergeRule& b) { return a.rank < b.rank; });
  const auto spelled = [&](int32_t id) {
    return in_alphabet(spec.tokens[static_cast<size_t>(id)]);
  };
  for (const MergeRule& merge : merges) {
    tokens.merges.push_back(cat(spelled(merge.left), " ", spelled(merge.right)));
  }
  return tokens;
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
  if (!spec.of_bytes) {
    throw DataError(cat(stored.path, ": no byte-level BPE, which GGUF files are written of"));
  }
  if (!stored.end_of_document) {
    throw DataError(cat(stored.path,
                        ": none of its tokens ends a document, want one of "
                        "<|endoftext|>, <|end_of_text|>, </s>, <eos>"));
  }
  Tokens tokens = tokens_of(spec, vocab);
  tokens.end = static_cast<uint32_t>(*stored.end_of_document);
  return bpe(std::move(tokens), splitting);
}

}  // namespace shale::models
