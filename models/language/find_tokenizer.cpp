#include "shale/models/language/find_tokenizer.h"

#include <optional>

#include "shale/comm/checkpoint/folder.h"
#include "shale/models/language/checkpoint_model.h"

namespace shale::models {

std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config) {
  const auto& language = config.language;
  const std::string& asked = language.source.tokenizer;
  if (asked == "none") return nullptr;
  if (!asked.empty()) return read_tokenizer(asked);
  const std::string& resume = config.run.resume;
  if (resume != "none") {
    // A run that goes on has what it began with, or nothing. What has changed is found when facts
    // are compared: this checkpoint may be damaged, and an older one sound.
    if (const auto checkpoint = newest_checkpoint(resume == "auto" ? config.run.out : resume)) {
      return find_tokenizer_in(*checkpoint);
    }
  }
  return language.init.empty() ? nullptr : open_model_tokenizer(language.init);
}

}  // namespace shale::models
