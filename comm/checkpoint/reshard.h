#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"

namespace shale {

// Divides a checkpoint's tensors into `ranks` files of about equal size. The tensors, one after
// another by name, are split into equal ranges of bytes at element boundaries.
std::vector<std::vector<TensorPart>> even_parts(const CheckpointManifest& manifest, int ranks);

// Writes the same checkpoint (step, state, config, tensors, attachments) as `ranks` files into
// `to`. Copies some megabytes at a time, verifies every checksum, and commits the result as a run
// does. Throws ConfigError if `to` has a checkpoint of that step, or for ranks outside 1 to 99,999;
// otherwise what CheckpointReader and CheckpointFolder throw. After an exception, removes what it
// has written.
void reshard_checkpoint(CheckpointReader& from, const CheckpointFolder& to, int ranks);

}  // namespace shale
