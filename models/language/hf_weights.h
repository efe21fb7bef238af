#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/view.h"
#include "shale/models/language/family.h"
#include "shale/runtime/io/safetensors.h"

namespace shale::models {

// The weights of a language model as Hugging Face folders hold them, whatever the family.

// A parameter under Shale's name, which is Hugging Face's without a prefix.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;  // Shale's, [out, in], vocabulary not padded
  bool transposed = false;     // the file has [in, out]
  // Names in the file, without the prefix, where they are not this one: a tensor each for equal
  // parts of the first dimension, in order. [E, F, C] is E of [F, C]; the whole is one of its own
  // shape.
  std::vector<std::string> parts = {};

  std::vector<int64_t> file_shape() const;  // of each part
  std::vector<std::string> file_names() const;
};

// What a family's files have in common.
struct HfLayout {
  std::string prefix;     // of all names but lm_head.weight: "transformer."
  std::string embedding;  // the parameter that has a row for each token: "wte.weight"
  // Buffers that files may hold besides, by their names without the prefix.
  bool (*is_buffer)(std::string_view name) = nullptr;

  std::string file_name(std::string_view parameter) const;
  // Models have more rows than the file, which are zero: the vocabulary is padded.
  bool may_pad(std::string_view parameter) const;
};

// The weights of a folder. Names with and without the prefix are understood; buffers are ignored,
// and so is, where no parameter is called so, an lm_head.weight that equals the embedding.
class HfWeights {
 public:
  // Throws as SafetensorsFolder; DataError with the names (the first 10), expected and found, if a
  // tensor is missing, unknown, or has another shape or an element type that is not F32, BF16 or
  // F16, or if an lm_head.weight that is no parameter differs from the embedding.
  HfWeights(const std::string& folder, const std::vector<HfTensor>& tensors, HfLayout layout);

  // Fills dst with rows [first_row, first_row + dst.size(0)) of the parameter, in Shale's layout.
  // dst: dense, host memory, f32, bf16 or f16, [rows, in], [rows] for a vector, [rows, F, C] of
  // several matrices. Rows beyond the vocabulary are zero.
  // Throws InternalError for an unknown name, ShapeError for a range or shape that does not fit.
  void read(std::string_view name, const View& dst, int64_t first_row = 0) const;

 private:
  struct Item {
    HfTensor tensor;
    std::vector<SafetensorsFolder::Tensor> files;  // of its parts
  };
  struct Part {
    Item* item;
    size_t index;
  };

  void check_head(const SafetensorsFolder::Tensor& head) const;
  void read_rows(const Item& item, int64_t first_row, int64_t rows, const View& dst) const;

  SafetensorsFolder folder_;
  HfLayout layout_;
  std::map<std::string, Item, std::less<>> items_;  // by Shale's names
  std::map<std::string, Part, std::less<>> parts_;  // by names in files
};

// A folder whose config.json has been read.
class HfStoredModel final : public StoredModel {
 public:
  HfStoredModel(const LanguageModelConfig& config, const std::string& folder,
                const std::vector<HfTensor>& tensors, HfLayout layout)
      : config_(config), weights_(folder, tensors, std::move(layout)) {}
  const LanguageModelConfig& config() const override { return config_; }
  void read(std::string_view parameter, const View& to, int64_t first_row) const override {
    weights_.read(parameter, to, first_row);
  }

 private:
  LanguageModelConfig config_;
  HfWeights weights_;
};

}  // namespace shale::models
