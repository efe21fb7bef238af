#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/text_file.h"
#include "shale/runtime/io/crc32c.h"

namespace shale {
namespace {

using tokenizer_internal::SplitPattern;

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

struct NamedId {
  int32_t id;
  const char* text;
};

// What is published as a file of tiktoken, by the number of its tokens: how text is split, and the
// tokens that are in programs and not in the file.
struct TiktokenKind {
  int64_t tokens;
  const char* name;
  SplitPattern pattern;
  std::vector<NamedId> special;
};

const std::vector<TiktokenKind>& tiktoken_kinds() {
  static const std::vector<TiktokenKind> kinds = {
      {50256, "r50k_base", SplitPattern::kGpt2, {{50256, "<|endoftext|>"}}},
      {100256,
       "cl100k_base",
       SplitPattern::kCl100k,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}}},
      {128000,
       "Llama 3",
       SplitPattern::kCl100k,
       {{128000, "<|begin_of_text|>"},
        {128001, "<|end_of_text|>"},
        {128006, "<|start_header_id|>"},
        {128007, "<|end_header_id|>"},
        {128009, "<|eot_id|>"}}},
      {199998,
       "o200k_base",
       SplitPattern::kO200k,
       {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
  };
  return kinds;
}

TokenizerSpec read_tiktoken(std::string_view text, const std::string& path) {
  const int64_t lines =
      std::count(text.begin(), text.end(), '\n') + (text.empty() || text.back() == '\n' ? 0 : 1);
  std::string known;
  for (const TiktokenKind& kind : tiktoken_kinds()) {
    known += cat(known.empty() ? "" : ", ", kind.tokens, " (", kind.name, ")");
    if (kind.tokens != lines) continue;
    std::vector<AddedToken> added;
    for (const auto& [id, token] : kind.special) added.push_back({.id = id, .text = token});
    return parse_tiktoken(text, kind.pattern, std::move(added), path);
  }
  throw DataError(cat(path,
                      ": neither a tokenizer.json nor a SentencePiece model; as a file of "
                      "tiktoken it has ",
                      lines, " lines, want ", known));
}

std::optional<int32_t> find_end(const Tokenizer& tokenizer) {
  for (const char* text : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    if (const std::optional<int32_t> id = tokenizer.find(text)) return id;
  }
  return {};
}

// The text of a special token, which may be an object, or of a template, which may be one of
// several; null: there is none.
Json text_in(const Json& value) {
  if (value.is_string()) return value;
  if (const Json* content = value.find("content")) return *content;
  if (!value.is_array()) return nullptr;
  for (const Json& named : value) {
    const Json* name = named.find("name");
    if (name != nullptr && *name == Json("default")) return named["template"];
  }
  return nullptr;
}

// StoredTokenizer::chat, of a tokenizer_config.json.
Json chat_of(const Json& config) {
  Json chat = Json::object();
  for (const char* key : {"chat_template", "bos_token", "eos_token", "pad_token", "unk_token"}) {
    const Json* value = config.find(key);
    const Json text = value == nullptr ? Json() : text_in(*value);
    if (text.is_string()) chat[key] = text;
  }
  return chat.contains("chat_template") ? chat : Json::object();
}

Json parse_config(std::string_view text, const std::string& path) {
  return text.empty() ? Json::object() : Json::parse(text, {.max_bytes = kMaxConfigBytes}, path);
}

std::shared_ptr<const StoredTokenizer> store(TokenizerSpec spec, std::string json,
                                             const std::string& path, Json chat) {
  if (json.empty()) json = to_tokenizer_json(spec);
  Tokenizer tokenizer(std::move(spec));
  const uint32_t crc = crc32c(std::as_bytes(std::span(json)));
  const std::optional<int32_t> end = find_end(tokenizer);
  return std::make_shared<const StoredTokenizer>(
      StoredTokenizer{path, std::move(json), crc, std::move(tokenizer), end, std::move(chat)});
}

}  // namespace

std::shared_ptr<const StoredTokenizer> byte_tokenizer() {
  TokenizerSpec spec{.source = "bytes", .splits = {PatternSplit{SplitPattern::kGpt2}}};
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  return store(std::move(spec), {}, "bytes", Json::object());
}

std::shared_ptr<const StoredTokenizer> parse_tokenizer(std::string bytes, const std::string& path,
                                                       std::string_view config) {
  constexpr char kFirstPiece = '\x0a';  // the tag of a model's field 1
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != bytes.npos && bytes[first] == '{';
  const bool is_model = !bytes.empty() && bytes[0] == kFirstPiece;
  TokenizerSpec spec = is_json    ? parse_tokenizer_json(bytes, path)
                       : is_model ? parse_sentencepiece(bytes, path)
                                  : read_tiktoken(bytes, path);
  return store(std::move(spec), is_json ? std::move(bytes) : std::string(), path,
               chat_of(parse_config(config, path)));
}

std::shared_ptr<const StoredTokenizer> read_tokenizer(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const auto beside = [&folder](const char* name) {
    const std::string file = (folder / name).string();
    return fs::is_regular_file(file) ? read_text_file(file, kMaxConfigBytes) : std::string();
  };
  Json config =
      parse_config(beside(kTokenizerConfigFile), (folder / kTokenizerConfigFile).string());
  const std::string chat = beside(kChatTemplateFile);
  if (!chat.empty()) config["chat_template"] = chat;
  return parse_tokenizer(read_text_file(path, kMaxTokenizerBytes), path, config.dump());
}

}  // namespace shale
