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

// The weights of a model as published folders hold them, Hugging Face's above all, whatever the
// family.

// A parameter under Shale's name, which is Hugging Face's without a prefix.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;  // Shale's, [out, in], vocabulary not padded
  bool transposed = false;     // the file has [in, out]
  // Names in the file, without the prefix, where they are not this one.
  std::vector<std::string> parts = {};
  // Each of these names has one index of the first dimension, in order: [E, F, C] is E of [F, C].
  // Else there is one name, for the whole.
  bool stacked = false;

  std::vector<int64_t> file_shape() const;  // of each part
  std::vector<std::string> file_names() const;
};

// What a family's files have in common.
struct HfLayout {
  std::string prefix;     // of all names but lm_head.weight: "transformer."
  std::string embedding;  // the parameter that has a row for each token: "wte.weight"
  // Buffers that files may hold besides, by their names without the prefix.
  std::function<bool(std::string_view name)> is_buffer = nullptr;
  // What says which tensors there are, for messages.
  std::string asked_by = "config.json";

  std::string file_name(std::string_view parameter) const;
  // Models have more rows than the file, which are zero: the vocabulary is padded.
  bool may_pad(std::string_view parameter) const;
};

// The weights of a folder, or of one file. Names with and without the prefix are understood;
// buffers are ignored, and so is, where no parameter is called so, an lm_head.weight that equals
// the embedding.
class HfWeights {
 public:
  // Throws as SafetensorsFolder; DataError with the names (the first 10), expected and found, if a
  // tensor is missing, unknown, or has another shape or an element type that is not F32, BF16 or
  // F16, or if an lm_head.weight that is no parameter differs from the embedding.
  HfWeights(const std::string& path, const std::vector<HfTensor>& tensors, HfLayout layout);

  // Fills dst with rows [first_row, first_row + dst.size(0)) of the parameter, in Shale's layout.
  // dst: dense, host memory, f32, bf16 or f16, of the parameter's shape but for the rows. Rows
  // beyond the vocabulary are zero. Throws InternalError for an unknown name, ShapeError for a
  // range or shape that does not fit.
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
