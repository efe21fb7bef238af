#pragma once

#include <string>

#include "shale/runtime/io/stored_tensors.h"

namespace shale {

// Checkpoints of torch.distributed.checkpoint (DCP): a folder with .metadata, a pickle that lists
// tensors and the places of their parts, and .distcp files with each part as data of torch.save.
// https://github.com/pytorch/pytorch/blob/main/torch/distributed/checkpoint/metadata.py

inline constexpr const char* kDcpMetadata = ".metadata";

// Adds the tensors of a folder, whose .distcp files stay mapped. Other entries, such as the step
// and the learning-rate schedule, are left out. Throws MissingInputError if a file is missing,
// DataError if .metadata is malformed or names other classes, and for parts that overlap, leave a
// gap, are compressed, or are not in their files.
void add_dcp(const std::string& folder, StoredTensors& tensors);

}  // namespace shale
