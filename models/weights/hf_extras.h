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

// Files of a published folder that describe a model besides its weights and shapes, by name: tokens
// that begin and end texts, and chat templates. Checkpoints contain these files, and exports get
// them:
// - generation_config.json, special_tokens_map.json: unchanged
// - tokenizer_config.json: unchanged, plus chat_template.jinja and additional_chat_templates/
// - hf_extras.json: the keys of config.json that exports keep
using HfExtras = std::map<std::string, std::string>;

// Reads the files of HfExtras in a published folder or a checkpoint. Ignores missing files. Throws
// DataError for a file that is not a JSON object.
HfExtras read_extras(const std::string& folder);

// Ids of special tokens.
struct SpecialTokens {
  std::optional<int64_t> begin, pad;
  // Tokens that end a text, a turn etc.; first the tokenizer's own end token.
  std::vector<int64_t> ends;
};
// Finds special tokens. Looks in generation_config.json, config.json, tokenizer_config.json and
// special_tokens_map.json, and `tokenizer` (may be null), in this order; the first that names a
// token decides. If there is a tokenizer, but none of them names the token that begins texts (BOS),
// it is the token that ends texts (EOS).
SpecialTokens special_tokens(const HfExtras& extras, const StoredTokenizer* tokenizer);

// Returns chat templates in Jinja, with their names. Most models have only one, "default".
std::vector<std::pair<std::string, std::string>> chat_templates(const HfExtras& extras);

// Adds a chat template, and `end_of_turn` as a token that ends texts.
void add_chat(HfExtras& extras, const StoredTokenizer& tokenizer, const std::string& chat_template,
              int64_t end_of_turn);

// Makes transformers use the exported tokenizer.json directly if it was converted from another
// format. The tokenizer class named in the original files would split text differently.
void keep_tokens(const StoredTokenizer& tokenizer, HfExtras& extras);

// Returns the files of an export: config.json, which is the model's text `config` with additional
// keys, and the files of `extras` and of the tokenizer. tokenizer: null: none.
std::map<std::string, std::string> exported_files(const HfExtras& extras,
                                                  const StoredTokenizer* tokenizer,
                                                  const std::string& config);

}  // namespace shale::models
