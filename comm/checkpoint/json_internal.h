#pragma once

#include <string>

#include "shale/comm/checkpoint/manifest.h"

namespace shale {

// Encodes the manifest of one rank's file as the text that add_shard reads.
std::string encode_shard(const CheckpointManifest& shard);

}  // namespace shale
