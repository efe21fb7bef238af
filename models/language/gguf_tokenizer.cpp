#include <nlohmann/json.hpp>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json_limits.h"
#include "shale/models/language/gguf.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::models {
namespace {

using nlohmann::json;

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

// A tokenizer.json that nobody vouches for.
class TokenizerFile {
 public:
  TokenizerFile(std::string path, int64_t vocab) : path_(std::move(path)) {
    constexpr JsonLimits kLimits{.max_bytes = int64_t{64} << 20};
    const std::string text = read_text_file(path_, kLimits.max_bytes);
    check_json(text, kLimits, path_);
    root_ = json::parse(text);
    const json& model = at(root_, "model");
    if (model.value("type", "BPE") != "BPE" || model.value("byte_fallback", false)) {
      fail("model", "byte-level BPE");
    }
    tokens_.texts.resize(static_cast<size_t>(vocab));
    tokens_.types.assign(static_cast<size_t>(vocab), kUnused);
    const json& ids = at(model, "vocab");
    if (!ids.is_object()) fail("model.vocab", "an object of tokens and their ids");
    for (const auto& [token, id] : ids.items()) put("model.vocab", id, token, kNormal);
    read_merges(at(model, "merges"));
    read_added();
    fill_unused();
  }
  Tokens take() { return std::move(tokens_); }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& want) const {
    throw DataError(cat(path_, ": '", key, "' is something else, want ", want));
  }
  const json& at(const json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      throw DataError(cat(path_, ": '", key, "' missing"));
    }
    return object[key];
  }

  void put(const char* key, const json& id, const std::string& token, TokenType type) {
    const auto vocab = static_cast<int64_t>(tokens_.texts.size());
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab) {
      throw DataError(cat(path_, ": '", key, "': token '", token, "' has the id ", id.dump(),
                          ", want 0 to ", vocab - 1, ", as the model has ", vocab, " tokens"));
    }
    const auto at = id.get<size_t>();
    if (tokens_.types[at] != kUnused && tokens_.texts[at] != token) {
      throw DataError(cat(path_, ": '", key, "': tokens '", tokens_.texts[at], "' and '", token,
                          "' have one id, ", at));
    }
    tokens_.texts[at] = token;
    tokens_.types[at] = type;
  }

  // "left right", or since tokenizers 0.20 [left, right].
  void read_merges(const json& merges) {
    if (!merges.is_array()) fail("model.merges", "a list of pairs");
    for (const json& merge : merges) {
      if (merge.is_string()) {
        tokens_.merges.push_back(merge);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        tokens_.merges.push_back(
            cat(merge[0].get<std::string>(), " ", merge[1].get<std::string>()));
      } else {
        fail("model.merges", "a list of pairs");
      }
    }
  }

  void read_added() {
    bool ends = false;
    for (const json& token : root_.value("added_tokens", json::array())) {
      const bool known = token.is_object() && token.contains("id") && token.contains("content") &&
                         token["content"].is_string();
      if (!known) fail("added_tokens", "a list of objects with id and content");
      const std::string text = token["content"];
      put("added_tokens", token["id"], text,
          token.value("special", true) ? kControl : kUserDefined);
      if (text != "<|endoftext|>" && text != "<|end_of_text|>") continue;
      tokens_.end = token["id"].get<uint32_t>();
      ends = true;
    }
    if (!ends) fail("added_tokens", "one of <|endoftext|> and <|end_of_text|> in it");
  }

  void fill_unused() {
    for (size_t id = 0; id < tokens_.texts.size(); ++id) {
      if (tokens_.types[id] == kUnused) tokens_.texts[id] = cat("[PAD", id, "]");
    }
  }

  std::string path_;
  json root_;
  Tokens tokens_;
};

}  // namespace

GgufValues gguf_byte_tokenizer() {
  return bpe({.texts = byte_alphabet(), .types = std::vector<int32_t>(256, kNormal)}, "gpt-2");
}

GgufValues gguf_tokenizer(const std::string& path, int64_t vocab, const std::string& splitting) {
  return bpe(TokenizerFile(path, vocab).take(), splitting);
}

}  // namespace shale::models
