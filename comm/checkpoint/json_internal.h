#pragma once

#include <string>

#include "shale/comm/checkpoint/manifest.h"

namespace shale {

// The reverse of add_shard: what a manifest that has only this rank's file says of it.
std::string encode_shard(const CheckpointManifest& shard);

}  // namespace shale
