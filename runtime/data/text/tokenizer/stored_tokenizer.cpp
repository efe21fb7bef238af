#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/runtime/io/crc32c.h"

namespace shale {
namespace {

namespace fs = std::filesystem;
using tokenizer_internal::SplitPattern;

constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;

struct NamedId {
  int32_t id;
  const char* text;
};

// A vocabulary that is published as a tiktoken file; the number of tokens identifies it. The file
// contains neither the split pattern nor the special tokens. They come from the programs that use
// the vocabulary.
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
  throw DataError(
      cat(path, ": neither a tokenizer.json nor a SentencePiece model; as a tiktoken file it has ",
          lines, " lines, expected ", known));
}

// Finds the end-of-document token by name. Searches only special tokens, because an ordinary token
// may have the same spelling.
std::optional<int32_t> find_end(const Tokenizer& tokenizer) {
  for (const std::string_view text : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    for (const AddedToken& token : tokenizer.spec().added) {
      if (token.special && token.text == text) return token.id;
    }
  }
  return {};
}

// Reads a JSON object from a file. Returns null if the file does not exist.
Json read_object(const fs::path& path) {
  constexpr JsonLimits kLimits{.max_bytes = int64_t{64} << 20};
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  return Json::parse(read_text_file(path.string(), kLimits.max_bytes), kLimits, path.string());
}

[[noreturn]] void refuse_end(const fs::path& file, const std::string& key, const Json& value) {
  throw DataError(cat(file.string(), ": ", key, " is ", excerpt(value.dump()),
                      ", which is not a token of the tokenizer in the same folder"));
}

// Returns the end-of-document token according to the tokenizer's configuration files in the folder.
std::optional<int32_t> declared_end(const fs::path& folder, const Tokenizer& tokenizer) {
  for (const char* file : {kTokenizerConfigFile, "special_tokens_map.json"}) {
    const Json json = read_object(folder / file);
    const Json* end = json.find("eos_token");
    if (end != nullptr && end->is_object()) end = end->find("content");
    if (end == nullptr || end->is_null()) continue;
    const auto id = end->is_string() ? tokenizer.find(end->text()) : std::nullopt;
    if (!id) refuse_end(folder / file, "eos_token", *end);
    return id;
  }
  return {};
}

// Returns the end-of-document token according to the model's configuration files in the folder. It
// is less reliable than that of the tokenizer's files: transformers writes 2 if no token was set.
std::optional<int32_t> end_of_model(const fs::path& folder, const Tokenizer& tokenizer) {
  for (const char* file : {"config.json", "generation_config.json"}) {
    const Json json = read_object(folder / file);
    const Json* end = json.find("eos_token_id");
    if (end != nullptr && end->is_array() && !end->empty()) end = &(*end)[size_t{0}];
    if (end == nullptr || end->is_null()) continue;
    const std::optional<int64_t> id = end->int64();
    const bool fits = id && *id >= 0 && *id < tokenizer.vocab_size();
    if (!fits || !tokenizer.has(static_cast<int32_t>(*id))) {
      refuse_end(folder / file, "eos_token_id", *end);
    }
    return static_cast<int32_t>(*id);
  }
  return {};
}

// Returns the text of a special token, which may be an object, or of a chat template, which may be
// in a list. Returns null if there is none.
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

// Returns StoredTokenizer::chat according to the files in a folder.
Json chat_in(const fs::path& folder) {
  Json config = read_object(folder / kTokenizerConfigFile);
  const fs::path file = folder / kChatTemplateFile;
  std::error_code error;
  if (fs::is_regular_file(file, error)) {
    if (config.is_null()) config = Json::object();
    config["chat_template"] = read_text_file(file.string(), kMaxTemplateBytes);
  }
  Json chat = Json::object();
  for (const char* key : {"chat_template", "bos_token", "eos_token", "pad_token", "unk_token"}) {
    const Json* value = config.find(key);
    const Json text = value == nullptr ? Json() : text_in(*value);
    if (text.is_string()) chat[key] = text;
  }
  return chat.contains("chat_template") ? chat : Json::object();
}

// folder: where configuration files may be; empty: there are none.
std::shared_ptr<const StoredTokenizer> store(TokenizerSpec spec, std::string json,
                                             const std::string& path, const fs::path& folder = {}) {
  if (json.empty()) json = to_tokenizer_json(spec);
  Tokenizer tokenizer(std::move(spec));
  const uint32_t crc = crc32c(std::as_bytes(std::span(json)));
  std::optional<int32_t> end;
  Json chat = Json::object();
  if (!folder.empty()) {
    end = declared_end(folder, tokenizer);
    chat = chat_in(folder);
  }
  if (!end) end = find_end(tokenizer);
  if (!end && !folder.empty()) end = end_of_model(folder, tokenizer);
  return std::make_shared<const StoredTokenizer>(
      StoredTokenizer{path, std::move(json), crc, std::move(tokenizer), end, std::move(chat)});
}

}  // namespace

std::shared_ptr<const StoredTokenizer> byte_tokenizer() {
  TokenizerSpec spec{.source = "bytes", .splits = {PatternSplit{SplitPattern::kGpt2}}};
  for (int byte = 0; byte < 256; ++byte) spec.tokens.emplace_back(1, static_cast<char>(byte));
  return store(std::move(spec), {}, "bytes");
}

namespace {

std::shared_ptr<const StoredTokenizer> parse(std::string bytes, const std::string& path,
                                             const fs::path& folder) {
  // tag of field 1 (pieces), with which a SentencePiece model begins
  constexpr char kFirstPiece = '\x0a';
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != bytes.npos && bytes[first] == '{';
  const bool is_model = !bytes.empty() && bytes[0] == kFirstPiece;
  TokenizerSpec spec = is_json    ? parse_tokenizer_json(bytes, path)
                       : is_model ? parse_sentencepiece(bytes, path)
                                  : read_tiktoken(bytes, path);
  return store(std::move(spec), is_json ? std::move(bytes) : std::string(), path, folder);
}

}  // namespace

std::shared_ptr<const StoredTokenizer> parse_tokenizer(std::string bytes, const std::string& path) {
  return parse(std::move(bytes), path, {});
}

std::shared_ptr<const StoredTokenizer> read_tokenizer(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return parse(read_text_file(path, kMaxTokenizerBytes), path, folder.empty() ? "." : folder);
}

std::optional<int32_t> begin_of_document(const StoredTokenizer& tokenizer) {
  const std::vector<int32_t>& before = tokenizer.tokenizer.spec().before;
  if (before.size() > 1) {
    throw DataError(cat(tokenizer.path, ": puts ", before.size(),
                        " tokens before a text; expected at most one before a document"));
  }
  if (before.empty() || before.front() == tokenizer.end_of_document) return {};
  return before.front();
}

std::vector<int32_t> encode_prompt(const StoredTokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> tokens =
      TokenEncoder(tokenizer.tokenizer).encode(text, {.special_tokens = true});
  tokenizer.tokenizer.begin_text(tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document.value_or(0));
  return tokens;
}

bool are_same(const StoredTokenizer& a, const StoredTokenizer& b) {
  if (a.crc == b.crc) return true;
  TokenizerSpec of_a = a.tokenizer.spec(), of_b = b.tokenizer.spec();
  of_a.source = of_b.source = {};
  return of_a == of_b;
}

std::map<std::string, std::string> tokenizer_files(const StoredTokenizer& tokenizer) {
  std::map<std::string, std::string> files = {{kTokenizerFile, tokenizer.json}};
  Json config = tokenizer.chat;
  if (tokenizer.end_of_document) {
    const std::vector<int32_t> ids = {*tokenizer.end_of_document};
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    config["eos_token"] = tokenizer.tokenizer.decode(ids);
  }
  if (!config.empty()) files[kTokenizerConfigFile] = config.dump(2) + "\n";
  return files;
}

}  // namespace shale
