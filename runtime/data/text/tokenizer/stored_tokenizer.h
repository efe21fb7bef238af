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

// The name of a tokenizer's file in folders of models, runs and checkpoints.
inline constexpr const char* kTokenizerFile = "tokenizer.json";
// Beside it, in folders of transformers: the names of special tokens, and a chat template, which a
// file of its own may have too.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

// A tokenizer and the file that others read it from.
struct StoredTokenizer {
  std::string path;
  std::string json;  // tokenizer.json: the file itself, or what it says in that form
  uint32_t crc = 0;  // CRC-32C of `json`
  Tokenizer tokenizer;
  // Follows each document: the token that the tokenizer's files declare, else the first special
  // token there is of <|endoftext|>, <|end_of_text|>, </s> and <eos>, else that of the model's files.
  std::optional<int32_t> end_of_document;
  // What its configuration says of conversations, an object of texts: "chat_template", in Jinja,
  // "bos_token", "eos_token" and so on. Empty: it comes without a chat template.
  Json chat = Json::object();
};

// Reads a tokenizer.json, a file of tiktoken, whose number of tokens says how it splits text, or a
// SentencePiece model. The end of a document is eos_token of a tokenizer_config.json or
// special_tokens_map.json in its folder, else one of the four special tokens, else eos_token_id of a
// config.json or generation_config.json there, of a list the first; its chat template is that of
// chat_template.jinja or tokenizer_config.json. Throws MissingInputError; DataError, starting with
// the path, that says what is malformed or not known.
std::shared_ptr<const StoredTokenizer> read_tokenizer(const std::string& path);
// The same of bytes that are at hand, without a folder.
std::shared_ptr<const StoredTokenizer> parse_tokenizer(std::string bytes, const std::string& path);

// The token before each document that is trained on: what the tokenizer puts before a text, unless
// that ends documents too, and so stands between them already. Throws DataError for several tokens.
std::optional<int32_t> begin_of_document(const StoredTokenizer& tokenizer);
// The tokens of a text to continue: in it, text that spells a special token becomes it.
std::vector<int32_t> encode_prompt(const StoredTokenizer& tokenizer, const std::string& text);

// Whether two tokenizers make the same of every text, as far as their files say it alike.
bool are_same(const StoredTokenizer& a, const StoredTokenizer& b);

// The files of a tokenizer by their names, from which read_tokenizer() makes the same one:
// tokenizer.json, and a tokenizer_config.json with the end of a document and the chat template.
std::map<std::string, std::string> tokenizer_files(const StoredTokenizer& tokenizer);

// What text is without a tokenizer: 256 tokens, the values of bytes. Nothing ends
// documents.
std::shared_ptr<const StoredTokenizer> byte_tokenizer();

// A model of SentencePiece (sentencepiece_model.proto) whose kind is BPE. Pieces merge as their
// scores say; of equal scores the leftmost. Throws DataError, starting with the source, for what is
// malformed, of another kind, or normalizes text by rules of its own.
TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& source);

// The tokenizer.json of a tokenizer of bytes, which splits by one pattern, or of characters with
// byte fallback, which does not split. Throws InternalError for others.
std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace shale
