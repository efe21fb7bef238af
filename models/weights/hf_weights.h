#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/view.h"
#include "shale/runtime/io/stored_tensors.h"

namespace shale::models {

// Reads the weights of any model family from published folders, mainly Hugging Face's.

// Parameter, and where files store it. Its name is Hugging Face's without a prefix.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;  // in Shale's layout, [out, in], without vocabulary padding
  bool transposed = false;     // files store the parameter as [in, out]
  // Names in the file, without the prefix. Empty: the file has it under `name`.
  std::vector<std::string> parts = {};
  // True: each of `parts` stores one index of the first dimension, in order, for example E tensors
  // [F, C] for [E, F, C]. False: a single tensor stores the whole parameter.
  bool stacked = false;
  // Number of heads in which the file interleaves the two rotary halves: row 2 i of a head in the
  // file is row i of Shale's head, and row 2 i + 1 is row i + D / 2, with head size D. 0: rows have
  // Shale's order.
  int64_t paired_heads = 0;
  bool zero_if_missing = false;  // zero if the file does not have it; for biases

  // Returns the shape that each of `parts` has in the file.
  std::vector<int64_t> file_shape() const;
  std::vector<std::string> file_names() const;
};

// What the files of a model family have in common.
struct HfLayout {
  std::string prefix;     // prefix of all names except lm_head.weight, for example "transformer."
  std::string embedding;  // parameter with a row for each token, for example "wte.weight"
  std::string head = "lm_head.weight";  // output layer in the file, with or without prefix
  // Returns true for buffers, which are ignored. name: without the prefix.
  std::function<bool(std::string_view name)> is_buffer = nullptr;
  // For messages: file that determines which tensors are expected.
  std::string asked_by = "config.json";

  std::string file_name(std::string_view parameter) const;
  // Returns true if the parameter may have padding rows of 0 that the file does not have.
  bool may_pad(std::string_view parameter) const;
};

// Weights in a folder or file. Names may have the prefix or not. Ignores buffers. If lm_head.weight
// is not a parameter of the model, it must equal the embedding and is ignored too.
class HfWeights {
 public:
  // path: of the files, for messages. Throws DataError with the first 10 names, expected and found
  // values, if a tensor is missing, unknown, of the wrong shape, or not F32, BF16 or F16. Also
  // throws it if an lm_head.weight that is not a parameter differs from the embedding.
  HfWeights(const std::string& path, StoredTensors files, const std::vector<HfTensor>& tensors,
            HfLayout layout);
  // Opens the files at `path` and throws as StoredTensors does.
  HfWeights(const std::string& path, const std::vector<HfTensor>& tensors, HfLayout layout)
      : HfWeights(path, StoredTensors(path), tensors, std::move(layout)) {}

  // Fills `dst` with rows [first_row, first_row + dst.size(0)) of the parameter, in Shale's layout.
  // dst: dense, host memory, f32, bf16 or f16; its other dimensions are those of the parameter.
  // Rows beyond the vocabulary are zero. Throws InternalError for an unknown name, ShapeError for
  // an invalid range or shape.
  void read(std::string_view name, const View& dst, int64_t first_row = 0) const;

 private:
  struct Item {
    HfTensor tensor;
    std::vector<const StoredTensor*> files;  // tensors that store the parameter; null: it is zero
  };
  struct Part {
    Item* item;
    size_t index;
  };

  void check_head(const StoredTensor& head) const;
  void read_rows(const Item& item, int64_t first_row, int64_t rows, const View& dst) const;
  void read_paired(const Item& item, int64_t first_row, int64_t rows, const View& dst) const;

  StoredTensors files_;
  HfLayout layout_;
  std::map<std::string, Item, std::less<>> items_;  // parameters by Shale's names
  std::map<std::string, Part, std::less<>> parts_;  // parts by names in files
};

}  // namespace shale::models
