#include "shale/models/weights/hf_extras.h"

#include <algorithm>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/text_file.h"
#include "shale/runtime/data/chat/chat_encoder.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTokenNames = "special_tokens_map.json";
constexpr const char* kChatTemplate = "chat_template";
constexpr const char* kKept = "hf_extras.json";
constexpr const char* kTokenizerClass = "tokenizer_class";
// Class that uses tokenizer.json as it is.
constexpr const char* kAnyTokenizer = "PreTrainedTokenizerFast";
constexpr JsonLimits kLimits{.max_bytes = int64_t{16} << 20};

// Keys of config.json that exports keep although they do not describe a model's shape. Keys of all
// families come first. MoE models have an unused intermediate_size too.
constexpr std::string_view kKeptKeys[] = {"bos_token_id", "eos_token_id", "pad_token_id",
                                          "initializer_range", "intermediate_size"};

Json parsed(const std::string& text, const std::string& path) {
  Json json = Json::parse(text, kLimits, path);
  if (!json.is_object()) throw DataError(cat(path, ": expected a JSON object"));
  return json;
}

// Returns one of the extras as a JSON object; empty if it is missing.
Json object_of(const HfExtras& extras, const char* name) {
  const auto it = extras.find(name);
  return it == extras.end() ? Json::object() : parsed(it->second, name);
}

// Returns a member of the object; null if it is missing.
const Json& member(const Json& object, std::string_view key) {
  static const Json kNull;
  const Json* found = object.find(key);
  return found == nullptr ? kNull : *found;
}

// Parses token ids, which are a number or a list. -1 means no token.
std::vector<int64_t> ids_of(const Json& value) {
  std::vector<int64_t> ids;
  const auto add = [&ids](const Json& id) {
    if (id.is_integer() && id.integer() >= 0) ids.push_back(id.integer());
  };
  add(value);
  if (value.is_array()) {
    for (const Json& item : value) add(item);
  }
  return ids;
}

// Returns the id of the token that the tokenizer's files name under `key`, as a string or an
// object.
std::optional<int64_t> named_token(const HfExtras& extras, const StoredTokenizer* tokenizer,
                                   const char* key) {
  if (tokenizer == nullptr) return {};
  for (const char* file : {kTokenizerConfigFile, kTokenNames}) {
    const Json object = object_of(extras, file);
    const Json& value = member(object, key);
    const Json& text = value.is_object() ? member(value, "content") : value;
    if (!text.is_string()) continue;
    if (const auto id = tokenizer->tokenizer.find(text.text())) return *id;
  }
  return {};
}

std::string text_of(const StoredTokenizer& stored, int64_t id) {
  const std::vector<int32_t> ids = {static_cast<int32_t>(id)};
  return stored.tokenizer.decode(ids);
}

// Stores the keys kKeptKeys of config.json as one of the extras.
void keep_keys(const std::string& config, const std::string& path, HfExtras& extras) {
  const Json json = parsed(config, path);
  Json kept = Json::object();
  for (const std::string_view key : kKeptKeys) {
    if (const Json* value = json.find(key)) kept[std::string(key)] = *value;
  }
  if (!kept.empty()) extras[kKept] = kept.dump(2) + "\n";
}

void keep_template(const Json& text, HfExtras& extras) {
  Json config = object_of(extras, kTokenizerConfigFile);
  config[kChatTemplate] = text;
  extras[kTokenizerConfigFile] = config.dump(2) + "\n";
}

// Adds chat_template.jinja, and the templates of additional_chat_templates/, as a list in the
// format of tokenizer_config.json.
void keep_templates(const std::string& text, const fs::path& others, HfExtras& extras) {
  Json all = Json::array({{{"name", "default"}, {"template", text}}});
  std::error_code error;
  std::map<std::string, std::string> paths;
  for (const auto& entry : fs::directory_iterator(others, error)) {
    if (entry.path().extension() == ".jinja") paths[entry.path().stem()] = entry.path().string();
  }
  for (const auto& [name, path] : paths) {
    all.push_back({{"name", name}, {"template", read_text_file(path, kLimits.max_bytes)}});
  }
  keep_template(paths.empty() ? Json(text) : all, extras);
}

std::string tokenizer_config(const HfExtras& extras, const StoredTokenizer& stored) {
  Json json = object_of(extras, kTokenizerConfigFile);
  bool is_whole = !json.empty();
  const auto fill = [&](const char* key, const Json& value) {
    if (!member(json, key).is_null()) return;
    json[key] = value;
    is_whole = false;
  };
  if (!json.contains(kTokenizerClass)) {
    fill(kTokenizerClass, kAnyTokenizer);
    fill("clean_up_tokenization_spaces", false);
  }
  const std::vector<int32_t>& before = stored.tokenizer.spec().before;
  if (before.size() == 1) fill("bos_token", text_of(stored, before[0]));
  const SpecialTokens special = special_tokens(extras, &stored);
  if (!special.ends.empty() && stored.tokenizer.has(static_cast<int32_t>(special.ends[0]))) {
    fill("eos_token", text_of(stored, special.ends[0]));
  }
  const Json& chat = member(json, kChatTemplate);
  const Json published = chat.is_string() ? Json(published_chat_template(chat.text())) : chat;
  if (published != chat) {
    json[kChatTemplate] = published;
    is_whole = false;
  }
  return is_whole ? extras.at(kTokenizerConfigFile) : json.dump(2) + "\n";
}

std::string config_json(const HfExtras& extras, const StoredTokenizer* tokenizer,
                        const std::string& text) {
  Json json = parsed(text, kHfConfigFile);
  const Json kept = object_of(extras, kKept);
  const SpecialTokens special = special_tokens(extras, tokenizer);
  const auto is_said = [&](std::string_view key) { return !member(kept, key).is_null(); };
  for (const std::string_view key : kKeptKeys) {
    const bool is_of_family = json.contains(key) || key.ends_with("_token_id");
    if (is_of_family && is_said(key)) json[std::string(key)] = member(kept, key);
  }
  if (!is_said("bos_token_id") && special.begin) json["bos_token_id"] = *special.begin;
  if (!is_said("pad_token_id") && special.pad) json["pad_token_id"] = *special.pad;
  if (!is_said("eos_token_id") && !special.ends.empty()) {
    const bool is_one = special.ends.size() == 1;
    json["eos_token_id"] = is_one ? Json(special.ends[0]) : Json(special.ends);
  }
  return json.dump(2) + "\n";
}

}  // namespace

HfExtras read_extras(const std::string& folder) {
  HfExtras extras;
  const auto read = [&folder](const char* name) -> std::optional<std::string> {
    const std::string path = (fs::path(folder) / name).string();
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return std::nullopt;
    return read_text_file(path, kLimits.max_bytes);
  };
  for (const char* name : {kGeneration, kTokenizerConfigFile, kTokenNames, kKept}) {
    if (auto text = read(name)) {
      parsed(*text, (fs::path(folder) / name).string());
      extras[name] = std::move(*text);
    }
  }
  if (const auto text = read(kHfConfigFile)) {
    keep_keys(*text, (fs::path(folder) / kHfConfigFile).string(), extras);
  }
  if (const auto text = read(kChatTemplateFile)) {
    keep_templates(*text, fs::path(folder) / "additional_chat_templates", extras);
  }
  return extras;
}

SpecialTokens special_tokens(const HfExtras& extras, const StoredTokenizer* tokenizer) {
  const Json generation = object_of(extras, kGeneration), kept = object_of(extras, kKept);
  const auto ids = [&](const char* key) {
    std::vector<int64_t> found = ids_of(member(generation, key));
    return found.empty() ? ids_of(member(kept, key)) : found;
  };
  const auto one = [&](const char* key, const char* name) -> std::optional<int64_t> {
    const std::vector<int64_t> found = ids(key);
    return found.empty() ? named_token(extras, tokenizer, name) : std::optional(found[0]);
  };
  SpecialTokens special;
  special.ends = ids("eos_token_id");
  std::optional<int64_t> named = named_token(extras, tokenizer, "eos_token");
  if (!named && tokenizer != nullptr) named = tokenizer->end_of_document;
  if (special.ends.empty() && named) special.ends = {*named};
  const auto first = std::find(special.ends.begin(), special.ends.end(), named.value_or(-1));
  if (first != special.ends.end()) std::rotate(special.ends.begin(), first, first + 1);
  special.pad = one("pad_token_id", "pad_token");
  special.begin = one("bos_token_id", "bos_token");
  if (special.begin || tokenizer == nullptr) return special;
  const std::vector<int32_t>& before = tokenizer->tokenizer.spec().before;
  if (before.size() == 1) {
    special.begin = before[0];
  } else if (!special.ends.empty()) {
    special.begin = special.ends[0];
  }
  return special;
}

std::vector<std::pair<std::string, std::string>> chat_templates(const HfExtras& extras) {
  constexpr const char* kDefault = "default";
  const Json config = object_of(extras, kTokenizerConfigFile);
  const Json& own = member(config, kChatTemplate);
  if (own.is_string()) return {{kDefault, published_chat_template(own.text())}};
  if (!own.is_array()) return {};
  std::vector<std::pair<std::string, std::string>> templates;
  for (const Json& named : own) {
    const Json &name = member(named, "name"), &text = member(named, "template");
    if (!name.is_string() || !text.is_string()) continue;
    const bool is_default = name.text() == kDefault;
    templates.emplace(is_default ? templates.begin() : templates.end(), name.text(), text.text());
  }
  return templates;
}

void add_chat(HfExtras& extras, const StoredTokenizer& tokenizer, const std::string& chat_template,
              int64_t end_of_turn) {
  if (!extras.contains(kTokenizerConfigFile)) {
    for (auto& [name, text] : tokenizer_files(tokenizer)) {
      if (name == kTokenizerConfigFile) extras[name] = std::move(text);
    }
  }
  const auto known = chat_templates(extras);
  if (known.empty() || known[0].second != chat_template) keep_template(chat_template, extras);
  std::vector<int64_t> ends = special_tokens(extras, &tokenizer).ends;
  if (std::find(ends.begin(), ends.end(), end_of_turn) != ends.end()) return;
  ends.push_back(end_of_turn);
  for (const char* file : {kKept, kGeneration}) {
    Json object = object_of(extras, file);
    object["eos_token_id"] = Json(ends);
    extras[file] = object.dump(2) + "\n";
  }
}

void keep_tokens(const StoredTokenizer& tokenizer, HfExtras& extras) {
  Json config = object_of(extras, kTokenizerConfigFile);
  if (tokenizer.path.ends_with(".json") || member(config, kTokenizerClass).is_null()) return;
  config[kTokenizerClass] = kAnyTokenizer;
  extras[kTokenizerConfigFile] = config.dump(2) + "\n";
}

std::map<std::string, std::string> exported_files(const HfExtras& extras,
                                                  const StoredTokenizer* tokenizer,
                                                  const std::string& config) {
  std::map<std::string, std::string> files;
  for (const char* name : {kGeneration, kTokenNames}) {
    if (const auto it = extras.find(name); it != extras.end()) files.insert(*it);
  }
  if (tokenizer != nullptr) {
    files[kTokenizerFile] = tokenizer->json;
    files[kTokenizerConfigFile] = tokenizer_config(extras, *tokenizer);
  }
  if (!config.empty()) files[kHfConfigFile] = config_json(extras, tokenizer, config);
  return files;
}

}  // namespace shale::models
