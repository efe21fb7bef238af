#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::models {

// Consecutive pictures or latents from a model: [pixels, pixels, channels] each.
struct Samples {
  int64_t pixels = 0, channels = 0;
  std::span<const float> values;
  bool is_pictures = true;  // RGB from -1 to 1; false: latents
};

// Writes pictures to PATH.png, row by row in a grid that is square or one column wider. Writes
// latents to PATH.safetensors, "latents" [n, channels, pixels, pixels] f32, for a decoder. Throws
// DiskError, and UnavailableError for pictures in a build without libpng.
void write_samples(const std::string& path, const Samples& samples);

// Gathers all ranks' values on rank 0, in rank order; returns nothing on others. Collective.
std::vector<float> gather_samples(comm::ProcessGroup& group, const std::vector<float>& mine);

}  // namespace shale::models
