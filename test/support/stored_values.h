#pragma once

#include <string_view>
#include <vector>

#include "shale/runtime/io/stored_tensors.h"
#include "shale/test/support/catch.h"

namespace shale::test {

// Returns the values of a whole stored tensor.
inline std::vector<float> read_all(const StoredTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count), -7.f);
  read_box(tensor, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape,
           {values.data(), DType::kF32, dense_strides(tensor.shape)});
  return values;
}
inline std::vector<float> read_all(const StoredTensors& files, std::string_view name) {
  const StoredTensor* tensor = files.find(name);
  REQUIRE(tensor != nullptr);
  return read_all(*tensor);
}

}  // namespace shale::test
