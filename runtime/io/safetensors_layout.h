#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shale/base/dtype.h"

namespace shale {

// A tensor that is going to be written.
struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t bytes() const;  // throws InternalError if the shape is no possible size
};

// A safetensors file before its data is there.
struct SafetensorsLayout {
  std::string front;            // what comes before the data: the header and its length
  std::vector<int64_t> begins;  // of each tensor's data, from the start of the file
  std::vector<size_t> order;    // places in the list of tensors, in the order of their data
  int64_t file_bytes = 0;
};

// Places tensors as the reference implementation does: larger element types first, then by name.
// Throws InternalError for a name that is declared twice, too long or not UTF-8, for a shape that
// is no possible size, and for more than a file can hold.
SafetensorsLayout lay_out_safetensors(const std::vector<SafetensorsSpec>& tensors,
                                      const std::map<std::string, std::string>& metadata);

// The part of these checks that concerns names and counts.
void check_safetensors_specs(const std::vector<SafetensorsSpec>& tensors);

}  // namespace shale
