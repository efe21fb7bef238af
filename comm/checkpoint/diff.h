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
    kForm,    // different element type or shape
    kValues,  // same form, different bits
  };

  std::string name;
  Kind kind = Kind::kValues;
  int64_t elements = 0;  // kValues: number of different elements
  // kValues: largest |first - second|. 0 if only the signs of zeros or bits of NaNs differ; NaN if
  // an element is NaN in one checkpoint and a number in the other.
  double max_abs = 0;
};

// Lists the tensors that differ, by name. The two checkpoints may be divided into files in
// different ways. Reads everything, some megabytes at a time. Throws as CheckpointReader::read.
std::vector<TensorDifference> diff_checkpoints(CheckpointReader& first, CheckpointReader& second);

}  // namespace shale
