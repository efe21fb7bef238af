#pragma once

#include <string>

#include "shale/comm/checkpoint/manifest.h"

namespace shale {

// Encodes a manifest with one rank's file as the record that add_shard takes.
std::string encode_shard(const CheckpointManifest& shard);

}  // namespace shale
