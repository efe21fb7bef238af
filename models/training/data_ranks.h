#pragma once

#include <algorithm>
#include <vector>

namespace shale::models {

// Ranks of a run, as the data loaders number them. Ranks that work on the same micro-batch, such as
// those of a pipeline, count as one.
struct DataRanks {
  int rank = 0;  // index of this rank
  int count = 1;
  std::vector<int> losses = {};  // global rank that has the losses of each data rank

  // True if this rank's samples are counted: one of the ranks that read the same data counts them.
  // With context parallelism every rank counts, as each reads its own tokens.
  bool counts = true;

  bool has_losses(int of_rank) const {
    return std::find(losses.begin(), losses.end(), of_rank) != losses.end();
  }
};

}  // namespace shale::models
