#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/reader.h"

namespace shale {

// How a tensor of two checkpoints differs.
struct TensorDifference {
  enum class Kind {
    kOnlyInFirst,
    kOnlyInSecond,
    kForm,    // another element type or shape
    kValues,  // the same form, but not the same bits
  };

  std::string name;
  Kind kind = Kind::kValues;
  int64_t elements = 0;  // of kValues: that differ in a bit
  // Largest |first - second|, of kValues. 0 if only zeros' signs or NaNs' bits differ; NaN if
  // some element is a NaN in one and a number in the other.
  double max_abs = 0;
};

// The tensors that differ, by name; the two may be cut among files in any way. Reads everything,
// some megabytes at a time. Throws as CheckpointReader::read.
std::vector<TensorDifference> diff_checkpoints(CheckpointReader& first, CheckpointReader& second);

}  // namespace shale
