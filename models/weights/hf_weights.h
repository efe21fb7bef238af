#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/io/safetensors.h"

namespace shale::models {

// Weights of any model family in published folders, mainly Hugging Face's.

// Parameter under Shale's name, which is Hugging Face's without a prefix.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;  // Shale's, [out, in], without vocabulary padding
  bool transposed = false;     // stored as [in, out]
  // Names in the file, without the prefix, if they differ.
  std::vector<std::string> parts = {};
  // True: each name holds one index of the first dimension, in order: [E, F, C] is E times [F, C].
  // False: a single name holds the whole.
  bool stacked = false;

  std::vector<int64_t> file_shape() const;  // of each part
  std::vector<std::string> file_names() const;
};

// Common properties of a family's files.
struct HfLayout {
  std::string prefix;     // of all names except lm_head.weight: "transformer."
  std::string embedding;  // parameter with a row for each token: "wte.weight"
  // Matches ignored buffers, by their names without the prefix.
  std::function<bool(std::string_view name)> is_buffer = nullptr;
  // Source of the list of tensors, for messages.
  std::string asked_by = "config.json";

  std::string file_name(std::string_view parameter) const;
  // True for parameters with more rows than the file; those of the padded vocabulary are zero.
  bool may_pad(std::string_view parameter) const;
};

// Weights of a folder or file. Accepts names with and without the prefix. Ignores buffers, and, if
// it is not a parameter, an lm_head.weight equal to the embedding.
class HfWeights {
 public:
  // Throws as SafetensorsFolder does; DataError with the (first 10) names, expected and found
  // values, if a tensor is missing, unknown, of the wrong shape, or not F32, BF16 or F16, or if an
  // lm_head.weight that is not a parameter differs from the embedding.
  HfWeights(const std::string& path, const std::vector<HfTensor>& tensors, HfLayout layout);

  // Fills dst with rows [first_row, first_row + dst.size(0)) of the parameter, in Shale's layout.
  // dst: dense, host memory, f32, bf16 or f16, shaped like the parameter except for the rows. Rows
  // beyond the vocabulary are zero. Throws InternalError for an unknown name, ShapeError for an
  // invalid range or shape.
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

}  // namespace shale::models
