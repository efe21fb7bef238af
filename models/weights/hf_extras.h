#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

inline constexpr const char* kHfConfigFile = "config.json";

// Files of a published folder that describe a model besides its weights and shapes: tokens that
// begin and end texts, and chat templates. Checkpoints carry these files, by name, and exports get
// them:
//   generation_config.json, special_tokens_map.json   unchanged
//   tokenizer_config.json                             unchanged, plus chat_template.jinja and
//                                                     additional_chat_templates/
//   hf_extras.json                                    the keys of config.json that exports keep
using HfExtras = std::map<std::string, std::string>;

// Reads the extras of a published folder or a checkpoint; missing files are omitted. Throws
// DataError for a file that is not a JSON object.
HfExtras read_extras(const std::string& folder);

// Ids of special tokens.
struct SpecialTokens {
  std::optional<int64_t> begin, pad;
  std::vector<int64_t> ends;  // tokens that end a text, a turn, ...; the tokenizer's own end first
};
// Finds special tokens. The first source that names a token decides: generation_config.json,
// config.json, tokenizer_config.json and special_tokens_map.json, `tokenizer` (may be null). If
// there is a tokenizer, but no source names the token that begins texts (BOS), it is the token that
// ends them (EOS).
SpecialTokens special_tokens(const HfExtras& extras, const StoredTokenizer* tokenizer);

// Returns chat templates, in Jinja, by name; most models have a single one, "default".
std::vector<std::pair<std::string, std::string>> chat_templates(const HfExtras& extras);

// Adds a chat template, and `end_of_turn` as a token that ends texts.
void add_chat(HfExtras& extras, const StoredTokenizer& tokenizer, const std::string& chat_template,
              int64_t end_of_turn);

// Makes transformers use the exported tokenizer.json directly, if it was converted from another
// format: the tokenizer class named in the original files would split text differently.
void keep_tokens(const StoredTokenizer& tokenizer, HfExtras& extras);

// Returns the files of an export: config.json, which extends the model's text `config`, and the
// files of the extras and of the tokenizer (null: none).
std::map<std::string, std::string> exported_files(const HfExtras& extras,
                                                  const StoredTokenizer* tokenizer,
                                                  const std::string& config);

}  // namespace shale::models
