#pragma once

#include <string>

#include "shale/runtime/io/stored_tensors.h"

namespace shale {

// Checkpoints of torch.distributed.checkpoint (DCP): a folder with .metadata and .distcp files.
// .metadata is a pickle that lists tensors and says where their parts are. A .distcp file contains
// each part in the format of torch.save.
// https://github.com/pytorch/pytorch/blob/main/torch/distributed/checkpoint/metadata.py

inline constexpr const char* kDcpMetadata = ".metadata";

// Adds the tensors of a folder to `tensors`, which keeps the .distcp files mapped. Leaves out other
// entries, such as the step and the learning-rate schedule. Throws MissingInputError if a file is
// missing. Throws DataError if .metadata is malformed or names unknown classes, and if parts
// overlap, leave a gap, are compressed, or are not in their files.
void add_dcp(const std::string& folder, StoredTensors& tensors);

}  // namespace shale
