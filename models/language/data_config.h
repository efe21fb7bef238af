#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/runtime/data/chat/chat_encoder.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale::models {

// What a language model learns from its data.
enum class Objective {
  kPretrain,  // every token of text
  kSft,       // the answers of conversations
  kDpo,       // which of two answers is better
};

// How documents become rows.
enum class PackingChoice {
  kAuto,    // text: one after the other; examples: best fit
  kConcat,  // one after the other, cut where a row ends
  kBestFit,
  kNone,  // an example in each row
};

// Which data is read, and how.
struct DataConfig {
  Objective objective = Objective::kPretrain;
  std::string data;
  DataFormat format = DataFormat::kAuto;
  std::string dtype = "auto";  // of files that do not say it
  std::string field = "text";
  std::string cache;      // a folder; empty: in --out
  std::string tokenizer;  // a file; empty: as find_tokenizer() does; "none"
  double val_fraction = 0.1;
  bool validate = false;
  bool document_mask = false;
  int64_t document_token = -1;  // negative: the tokenizer's
  PackingChoice packing = PackingChoice::kAuto;
  ChatTemplate chat_template = ChatTemplate::kAuto;

  // Of kDpo (Rafailov et al., arXiv:2305.18290).
  double dpo_beta = 0.1;
  double dpo_smoothing = 0;  // how often preferences are taken to be wrong
};

// Declares the flags, in a section of their own. needs_data: --data is required.
void describe(ConfigSpec& spec, DataConfig& config, bool needs_data);
// --chat-template, which programs that write conversations have.
void describe_chat_template(ConfigSpec& spec, ChatTemplate& style);
// Throws ConfigError for combinations that cannot be.
void check(const DataConfig& config);

}  // namespace shale::models
