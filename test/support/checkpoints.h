#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/layout.h"
#include "shale/comm/checkpoint/reader.h"

namespace shale::test {

// Options of small checkpoints with known contents. They have several element types, a scalar, an
// empty tensor, tensors in one file and in several, and a tensor that is divided into a grid of
// boxes.
struct SampleOptions {
  int ranks = 2;
  int64_t chunk_bytes = 4096;
  int64_t rows = 200;  // rows of the largest tensor, [rows, 16] f32
};

// Returns all tensors of the checkpoint, each as one part.
std::vector<TensorPart> sample_tensors(const SampleOptions& options);

// Returns the parts of these tensors that one rank has.
std::vector<TensorPart> sample_parts(const SampleOptions& options, int rank);

// Returns the bytes of a part at a training step.
std::vector<std::byte> sample_bytes(const TensorPart& part, int64_t step);

// Saves the checkpoint of a step, with the files of all ranks.
void save_sample(const CheckpointFolder& folder, int64_t step, const SampleOptions& options);

// Reads the whole checkpoint in pieces of `piece` elements. Returns "" if it is what save_sample
// wrote, else a difference.
std::string sample_difference(CheckpointReader& reader, const SampleOptions& options,
                              int64_t piece = int64_t{1} << 40);

}  // namespace shale::test
