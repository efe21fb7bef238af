#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/reader.h"

namespace shale {

// Difference of a tensor between two checkpoints.
struct TensorDifference {
  enum class Kind {
    kOnlyInFirst,
    kOnlyInSecond,
    kForm,    // the element type or the shape differs
    kValues,  // same element type and shape, but different bits
  };

  std::string name;
  Kind kind = Kind::kValues;
  int64_t elements = 0;  // kValues: number of different elements
  // kValues: largest |first - second|. 0 if only the signs of zeros or bits of NaNs differ; NaN if
  // an element is NaN in one checkpoint and a number in the other.
  double max_abs = 0;
};

// Lists the tensors that differ, sorted by name. The two checkpoints may be divided into files in
// different ways. Reads both checkpoints completely, some megabytes at a time. Throws what
// CheckpointReader::read throws.
std::vector<TensorDifference> diff_checkpoints(CheckpointReader& first, CheckpointReader& second);

}  // namespace shale
