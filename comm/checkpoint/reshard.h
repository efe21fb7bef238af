#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"

namespace shale {

// The parts of a checkpoint's tensors for each of `ranks` files of about the same size: all tensors
// one after another by name, cut into equal ranges of bytes, at elements.
std::vector<std::vector<TensorPart>> even_parts(const CheckpointManifest& manifest, int ranks);

// Writes the same checkpoint (step, state, config, tensors, attachments) as `ranks` files into
// `to`, some megabytes at a time, every byte checked on its way, and commits it as a run would.
// Throws ConfigError if `to` has a checkpoint of that step, or for ranks outside 1 to 99,999; else
// as CheckpointReader and CheckpointFolder. Leaves nothing if it throws.
void reshard_checkpoint(CheckpointReader& from, const CheckpointFolder& to, int ranks);

}  // namespace shale
