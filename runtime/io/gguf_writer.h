#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale {

// How a GGUF file stores elements: the format's numbers (ggml's docs/gguf.md).
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ8_0 = 8,  // blocks of 32: an f16 scale d = max |x| / 127, then 32 x i8 round(x / d)
  kBF16 = 30,
};

// The same elements in memory; none for Q8_0.
std::optional<DType> gguf_dtype(GgufType type);

// What a key of the file's head stands for: an unsigned or signed 32-bit integer, a number, a flag,
// a text, or an array of texts, integers or numbers.
using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string,
                               std::vector<std::string>, std::vector<int32_t>, std::vector<float>>;
using GgufValues = std::vector<std::pair<std::string, GgufValue>>;

// A tensor: shape is row-major, outermost first.
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape;
};

// Writes a GGUF file, version 3, as llama.cpp reads it: all tensors are declared, then their
// elements come in that order, in pieces of any number of rows. The file appears with commit().
class GgufWriter {
 public:
  // Throws ConfigError for a name of more than 63 bytes, and for rows of a Q8_0 tensor that are no
  // multiple of 32 elements; InternalError for a name or key that comes twice; DiskError if the
  // file cannot be made or the disk has no room.
  GgufWriter(const std::string& path, const GgufValues& values, std::vector<GgufTensor> tensors);

  // The next elements, whole rows of the current tensor. Rounded to nearest, ties to even; Q8_0's
  // integers to nearest, ties away from zero, as ggml does. Throws InternalError if they are more
  // than it has left, DataError for Q8_0 and an element that is not finite, DiskError.
  void write(std::span<const float> elements);

  // Gives the file its name. Throws InternalError if a tensor is not complete.
  void commit();

 private:
  const GgufTensor& current(size_t elements) const;

  std::vector<GgufTensor> tensors_;
  std::vector<int64_t> begins_;  // of each tensor's data in the file
  AtomicFile file_;
  int64_t file_bytes_ = 0;
  size_t current_ = 0;
  int64_t written_ = 0;  // elements of the current tensor
};

}  // namespace shale
