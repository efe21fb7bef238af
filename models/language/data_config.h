#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/base/config.h"
#include "shale/runtime/data/chat/chat_encoder.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale::models {

// Training objective.
enum class Objective {
  kPretrain,  // predict every token of text
  kSft,       // predict the answers of conversations
  kDpo,       // prefer one of two answers
};

// Method of packing documents into rows.
enum class PackingChoice {
  kAuto,    // kConcat for plain text, kBestFit for examples (kSft, kDpo)
  kConcat,  // one document after the other, split at row ends
  kBestFit,
  kNone,  // one example per row
};

// Format of the data. Files of raw tokens have no header, so the width of a token is given here.
struct FileFormat {
  DataFormat kind = DataFormat::kAuto;
  std::optional<TokenWidth> width = {};

  friend bool operator==(const FileFormat&, const FileFormat&) = default;
};

// Training data, and how to read it.
struct DataConfig {
  Objective objective = Objective::kPretrain;
  std::string data;
  FileFormat format;
  std::string field = "text";
  std::string cache;      // folder for the tokens of a corpus; empty: a folder in --out
  std::string tokenizer;  // file, or "none"; empty: the result of find_tokenizer()
  double val_fraction = 0.1;
  bool document_mask = false;
  int64_t document_token = -1;  // token between documents; negative: that of the tokenizer
  PackingChoice packing = PackingChoice::kAuto;
  ChatTemplate chat_template = ChatTemplate::kAuto;

  double dpo_beta = 0.1;  // beta of kDpo (Rafailov et al., arXiv:2305.18290)
};

// Declares the flags of `config` in their own section. needs_data: --data is required.
void describe(ConfigSpec& spec, DataConfig& config, bool needs_data);
// Declares --chat-template, for programs that write conversations.
void describe_chat_template(ConfigSpec& spec, ChatTemplate& style);
// Throws ConfigError for incompatible options.
void check(const DataConfig& config);

}  // namespace shale::models
