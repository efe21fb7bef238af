#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::models {

// Consecutive pictures or latents that a model generated, [pixels, pixels, channels] each.
struct Samples {
  int64_t pixels = 0, channels = 0;
  std::span<const float> values;
  bool is_pictures = true;  // true: RGB from -1 to 1; false: latents
};

// Writes pictures to PATH.png as a grid, filled row by row. The grid is square or has one more
// column than rows. Writes latents to PATH.safetensors, as "latents" [n, channels, pixels, pixels]
// f32, for a decoder. Throws DiskError, and UnavailableError for pictures in a build without
// libpng.
void write_samples(const std::string& path, const Samples& samples);

// Gathers the values of all ranks on rank 0, in rank order. Other ranks get an empty vector.
// Collective.
std::vector<float> gather_samples(comm::ProcessGroup& group, const std::vector<float>& mine);

}  // namespace shale::models
