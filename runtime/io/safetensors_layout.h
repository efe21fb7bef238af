#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shale/base/dtype.h"

namespace shale {

// Declaration of a tensor to be written.
struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t bytes() const;  // throws InternalError if the shape is invalid
};

// Layout of a safetensors file before its data is written.
struct SafetensorsLayout {
  std::string front;            // all bytes before the data: the header and its length
  std::vector<int64_t> begins;  // offset of each tensor's data in the file
  std::vector<size_t> order;    // indices of tensors, in the order of their data in the file
  int64_t file_bytes = 0;
};

// Lays out tensors like the reference implementation: sorted by element type, larger ones first,
// then by name. Throws InternalError for a name that is repeated, too long or not UTF-8, for an
// invalid shape, and for more tensors or bytes than a file can hold.
SafetensorsLayout lay_out_safetensors(const std::vector<SafetensorsSpec>& tensors,
                                      const std::map<std::string, std::string>& metadata);

// Checks names and number of tensors as lay_out_safetensors() does, but nothing else.
void check_safetensors_specs(const std::vector<SafetensorsSpec>& tensors);

}  // namespace shale
