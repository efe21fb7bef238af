#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"

namespace shale {

// Divides a checkpoint's tensors into `ranks` files of about equal size: all tensors one after
// another by name, split into equal byte ranges at element boundaries.
std::vector<std::vector<TensorPart>> even_parts(const CheckpointManifest& manifest, int ranks);

// Writes the same checkpoint (step, state, config, tensors, attachments) as `ranks` files into
// `to`, some megabytes at a time, verifies every checksum, and commits it as a run does. Throws
// ConfigError if `to` has a checkpoint of that step, or for ranks outside 1 to 99,999; else what
// CheckpointReader and CheckpointFolder throw. Leaves no files after an exception.
void reshard_checkpoint(CheckpointReader& from, const CheckpointFolder& to, int ranks);

}  // namespace shale
