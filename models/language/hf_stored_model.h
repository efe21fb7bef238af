#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/models/language/family.h"
#include "shale/models/weights/hf_weights.h"

namespace shale::models {

// StoredModel for Hugging Face files, given their parsed config.json.
class HfStoredModel final : public StoredModel {
 public:
  HfStoredModel(const LanguageModelConfig& config, const std::string& path, StoredTensors files,
                const std::vector<HfTensor>& tensors, HfLayout layout)
      : config_(config), weights_(path, std::move(files), tensors, std::move(layout)) {}
  const LanguageModelConfig& config() const override { return config_; }
  void read(std::string_view parameter, const View& to, int64_t first_row) const override {
    weights_.read(parameter, to, first_row);
  }

 private:
  LanguageModelConfig config_;
  HfWeights weights_;
};

}  // namespace shale::models
