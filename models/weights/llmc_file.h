#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/io/stored_tensors.h"

namespace shale::models {

// Model in a file model_*.bin of llm.c, https://github.com/karpathy/llm.c. The file has 256
// integers of 32 bits (a magic number, a version and the model's sizes), and then the values of
// tensors without names.
class LlmcFile {
 public:
  // Opens a file. Returns nullopt if it begins with another magic number. Throws DataError for
  // versions other than 3 (F32) and 5 (BF16).
  static std::optional<LlmcFile> open(const std::string& path, int32_t magic);

  int64_t header(size_t i) const { return header_[i]; }
  int64_t values_left() const;  // number of values that add() can still take

  // Adds the next tensor. stored_rows: number of rows in the file, of which the first shape[0] are
  // used; 0: shape[0]. The caller must have limited the sizes, so that their product is below 2^63.
  // Throws DataError if the file ends before the tensor does.
  void add(const std::string& name, const std::vector<int64_t>& shape, int64_t stored_rows = 0);

  // Returns the added tensors. Throws DataError if the file has more.
  StoredTensors finish();

 private:
  static constexpr size_t kHeaderIntegers = 256;

  const MappedFile* file_ = nullptr;  // owned by files_
  const SafetensorsDType* type_ = nullptr;
  StoredTensors files_;
  std::array<int32_t, kHeaderIntegers> header_{};
  int64_t next_ = sizeof header_;
};

}  // namespace shale::models
