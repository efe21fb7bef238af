#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"

namespace shale::models {

// Pictures or latents as models make them, one after another: [pixels, pixels, channels] each.
struct Samples {
  int64_t pixels = 0, channels = 0;
  std::span<const float> values;
  bool is_pictures = true;  // from -1 to 1, red, green and blue
};

// Pictures: PATH.png, a grid as wide as it is high, or one wider, row by row. Latents:
// PATH.safetensors, "latents" [n, channels, pixels, pixels] f32, which a decoder takes. Throws
// DiskError, and UnavailableError for pictures in a build without libpng.
void write_samples(const std::string& path, const Samples& samples);

// All ranks' values, by rank, on rank 0; elsewhere nothing. Collective.
std::vector<float> gather_samples(comm::ProcessGroup& group, const std::vector<float>& mine);

}  // namespace shale::models
