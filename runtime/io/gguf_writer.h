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

// Element types of a GGUF file. The values are the format's numbers (ggml's docs/gguf.md).
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ8_0 = 8,  // blocks of 32 elements: an f16 scale d = max |x| / 127, then 32 x i8 round(x / d)
  kBF16 = 30,
};

// Returns the corresponding dtype in memory; nullopt for Q8_0.
std::optional<DType> gguf_dtype(GgufType type);

// Value of a metadata key: an unsigned or signed 32-bit integer, a float, a bool, a string, or an
// array of strings, integers or floats.
using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string,
                               std::vector<std::string>, std::vector<int32_t>, std::vector<float>>;
using GgufValues = std::vector<std::pair<std::string, GgufValue>>;

// Declaration of a tensor. shape is row-major, outermost first.
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<int64_t> shape;
};

// Writes a GGUF file, version 3, for llama.cpp. All tensors are declared first; then their elements
// are written in that order, in pieces of any number of rows. The file appears with commit().
class GgufWriter {
 public:
  // Throws ConfigError for a name of more than 63 bytes, and for rows of a Q8_0 tensor whose length
  // is not a multiple of 32; InternalError for a repeated name or key; DiskError if the file cannot
  // be created or the disk is full.
  GgufWriter(const std::string& path, const GgufValues& values, std::vector<GgufTensor> tensors);

  // Writes the next rows of the current tensor; `elements` are whole rows. Floats are rounded to
  // nearest even; Q8_0 integers to nearest, ties away from zero, as in ggml. Throws InternalError
  // for more elements than remain, DataError for a non-finite element of a Q8_0 tensor, DiskError.
  void write(std::span<const float> elements);

  // Renames the file to its final name. Throws InternalError if a tensor is incomplete.
  void commit();

 private:
  const GgufTensor& current(size_t elements) const;

  std::vector<GgufTensor> tensors_;
  std::vector<int64_t> begins_;  // offset in the file of each tensor's data
  AtomicFile file_;
  int64_t file_bytes_ = 0;
  size_t current_ = 0;
  int64_t written_ = 0;  // number of elements of the current tensor written so far
};

}  // namespace shale
