#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/layout.h"
#include "shale/comm/checkpoint/reader.h"

namespace shale::test {

// Small checkpoints whose every byte is known: several element types, a scalar, an empty tensor,
// tensors that lie in one file or in several, and one that is cut into a grid of boxes.
struct SampleOptions {
  int ranks = 2;
  int64_t chunk_bytes = 4096;
  int64_t rows = 200;  // of the largest tensor, [rows, 16] f32
};

// All tensors, as one part each.
std::vector<TensorPart> sample_tensors(const SampleOptions& options);

// What one rank has of them.
std::vector<TensorPart> sample_parts(const SampleOptions& options, int rank);

// The bytes of a part at a step.
std::vector<std::byte> sample_bytes(const TensorPart& part, int64_t step);

// Saves a step as all its ranks would.
void save_sample(const CheckpointFolder& folder, int64_t step, const SampleOptions& options);

// Reads everything in pieces of `piece` elements. Empty if it is what save_sample wrote, else what
// differs.
std::string sample_difference(CheckpointReader& reader, const SampleOptions& options,
                              int64_t piece = int64_t{1} << 40);

}  // namespace shale::test
