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
// Files in folders of transformers. The first one has the names of special tokens and a chat
// template, the other one only the chat template.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

// A tokenizer and its serialised form.
struct StoredTokenizer {
  std::string path;
  std::string json;  // text of tokenizer.json: the file's own, or converted from another format
  uint32_t crc = 0;  // CRC-32C of `json`
  Tokenizer tokenizer;
  // Token that follows each document. It is the one that the tokenizer's files declare. Otherwise
  // it is the first special token that exists among <|endoftext|>, <|end_of_text|>, </s> and <eos>.
  // Otherwise it is the one in the model's files.
  std::optional<int32_t> end_of_document;
  // Chat settings of the tokenizer's configuration, strings by key: "chat_template", in Jinja,
  // "bos_token", "eos_token" and so on. Empty if there is no chat template.
  Json chat = Json::object();
};

// Reads a tokenizer from one of three kinds of files: a tokenizer.json; a tiktoken file, for which
// the number of tokens determines the split pattern; a SentencePiece model.
//
// The end-of-document token is the eos_token in tokenizer_config.json or special_tokens_map.json in
// the same folder. Otherwise it is one of the four special tokens of
// StoredTokenizer::end_of_document. Otherwise it is the eos_token_id in config.json or
// generation_config.json; of a list, the first. The chat template comes from chat_template.jinja or
// tokenizer_config.json. Throws MissingInputError; DataError, which begins with the path, for
// malformed or unknown contents.
std::shared_ptr<const StoredTokenizer> read_tokenizer(const std::string& path);
// read_tokenizer() for bytes in memory, without other files.
std::shared_ptr<const StoredTokenizer> parse_tokenizer(std::string bytes, const std::string& path);

// Returns the token to put before each training document. This is the token that the tokenizer puts
// before a text. If that token also ends documents, it already separates them, and nullopt is
// returned. Throws DataError if the tokenizer puts several tokens before a text.
std::optional<int32_t> begin_of_document(const StoredTokenizer& tokenizer);
// Encodes a prompt for a model to continue. Text that spells a special token is encoded as that
// token.
std::vector<int32_t> encode_prompt(const StoredTokenizer& tokenizer, const std::string& text);

// Returns true if two tokenizers encode every text equally, as far as their files tell.
bool are_same(const StoredTokenizer& a, const StoredTokenizer& b);

// Returns files from which read_tokenizer() can restore the tokenizer: name -> contents. They are
// tokenizer.json, and a tokenizer_config.json with the end-of-document token and the chat template.
std::map<std::string, std::string> tokenizer_files(const StoredTokenizer& tokenizer);

// Returns a tokenizer without a vocabulary: its 256 tokens are the byte values. It has no
// end-of-document token.
std::shared_ptr<const StoredTokenizer> byte_tokenizer();

// Parses a SentencePiece BPE model (sentencepiece_model.proto). Pieces with higher scores merge
// first; of equal scores, the leftmost. Throws DataError, which begins with the source, for a model
// that is malformed, of another type, or has its own normalization rules.
TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& source);

// Returns the text of a tokenizer.json. Supports byte-level tokenizers with one split pattern, and
// character-level tokenizers with byte fallback and without splitting. Throws InternalError for
// others.
std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace shale
