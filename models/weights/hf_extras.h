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

// What a published folder says of a model besides its weights and their shapes: which tokens begin
// and end texts, and how conversations are written. These are files, by their names, that
// checkpoints carry and exports get:
//   generation_config.json, special_tokens_map.json   as they are
//   tokenizer_config.json                             as it is, with chat_template.jinja and
//                                                     additional_chat_templates/ in it
//   hf_extras.json                                    of config.json the keys that exports keep
using HfExtras = std::map<std::string, std::string>;

// Those of a published folder or of a checkpoint; what is not there is left out. Throws DataError
// for a file that is no JSON object.
HfExtras read_extras(const std::string& folder);

// The ids of tokens that have a meaning.
struct SpecialTokens {
  std::optional<int64_t> begin, pad;
  std::vector<int64_t>
      ends;  // of a text, a turn and so on; what the tokenizer calls so comes first
};
// By generation_config.json, else config.json, else the tokenizer's files, else the tokenizer
// itself (null: there is none), whose texts begin with what ends them if nothing else is said.
SpecialTokens special_tokens(const HfExtras& extras, const StoredTokenizer* tokenizer);

// Chat templates, in Jinja as other programs read it, by their names; that of most models is called
// "default".
std::vector<std::pair<std::string, std::string>> chat_templates(const HfExtras& extras);

// Adds that the model writes conversations in this template, and that this token ends a turn and so
// a text.
void add_chat(HfExtras& extras, const StoredTokenizer& tokenizer, const std::string& chat_template,
              int64_t end_of_turn);

// Makes transformers take the tokenizer.json of an export as it is, where it was made of another
// file: the class that is named beside that one splits text otherwise.
void keep_tokens(const StoredTokenizer& tokenizer, HfExtras& extras);

// The files of an export: config.json, of which `config` is the text that the model's shape makes,
// and what the extras and the tokenizer (null: there is none) add.
std::map<std::string, std::string> exported_files(const HfExtras& extras,
                                                  const StoredTokenizer* tokenizer,
                                                  const std::string& config);

}  // namespace shale::models
