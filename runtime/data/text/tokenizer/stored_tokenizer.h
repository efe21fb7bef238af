#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/json.h"
#include "shale/runtime/data/text/tokenizer/tokenizer.h"

namespace shale {

// Name of the tokenizer file in folders of models, runs and checkpoints.
inline constexpr const char* kTokenizerFile = "tokenizer.json";
// Further files in folders of transformers: one with the names of special tokens and a chat
// template, one with only the chat template.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

// A tokenizer and its serialised form.
struct StoredTokenizer {
  std::string path;
  std::string json;  // text of tokenizer.json: the file itself, or converted from another format
  uint32_t crc = 0;  // CRC-32C of `json`
  Tokenizer tokenizer;
  // Token that follows each document: the one declared by the tokenizer's files, else the first
  // existing special token of <|endoftext|>, <|end_of_text|>, </s> and <eos>, else the one of the
  // model's files.
  std::optional<int32_t> end_of_document;
  // Chat settings of the tokenizer's configuration, strings by key: "chat_template", in Jinja,
  // "bos_token", "eos_token" and so on. Empty if it has no chat template.
  Json chat = Json::object();
};

// Reads a tokenizer.json, a tiktoken file, whose number of tokens determines its split pattern, or
// a SentencePiece model. The end-of-document token is the eos_token of a tokenizer_config.json or
// special_tokens_map.json in its folder, else one of the four special tokens, else the eos_token_id
// (the first of a list) of a config.json or generation_config.json there. The chat template comes
// from chat_template.jinja or tokenizer_config.json. Throws MissingInputError; DataError, which
// begins with the path, for malformed or unknown contents.
std::shared_ptr<const StoredTokenizer> read_tokenizer(const std::string& path);
// Like read_tokenizer(), but for bytes in memory, without further files.
std::shared_ptr<const StoredTokenizer> parse_tokenizer(std::string bytes, const std::string& path);

// Returns the token before each training document: the one that the tokenizer puts before a text,
// unless that token also ends documents and so separates them. Throws DataError for several tokens.
std::optional<int32_t> begin_of_document(const StoredTokenizer& tokenizer);
// Encodes a prompt to continue; text that spells a special token is encoded as that token.
std::vector<int32_t> encode_prompt(const StoredTokenizer& tokenizer, const std::string& text);

// Returns true if two tokenizers encode every text alike, as far as their files show.
bool are_same(const StoredTokenizer& a, const StoredTokenizer& b);

// Returns the files of a tokenizer by name, from which read_tokenizer() can restore it:
// tokenizer.json, and a tokenizer_config.json with the end-of-document token and the chat template.
std::map<std::string, std::string> tokenizer_files(const StoredTokenizer& tokenizer);

// Returns a tokenizer without a vocabulary: its 256 tokens are the byte values. It has no
// end-of-document token.
std::shared_ptr<const StoredTokenizer> byte_tokenizer();

// Parses a SentencePiece BPE model (sentencepiece_model.proto). Pieces merge by score; of equal
// scores the leftmost. Throws DataError, which begins with the source, for a model that is
// malformed, of another type, or has its own normalization rules.
TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& source);

// Returns the tokenizer.json of a byte-level tokenizer with one split pattern, or of a
// character-level one with byte fallback and without splitting. Throws InternalError for others.
std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace shale
