#pragma once

#include <algorithm>
#include <vector>

namespace shale::models {

// Ranks of a run as data loaders number them. Ranks that work on the same micro-batch, such as
// those of a pipeline, have one number.
struct DataRanks {
  int rank = 0;  // number of this rank, 0 to count - 1
  int count = 1;
  std::vector<int> losses = {};  // for each number, the global rank that has the losses

  // True if this rank counts its samples. Of the ranks that read the same data, one counts. With
  // context parallelism every rank counts, because each reads its own tokens.
  bool counts = true;

  bool has_losses(int of_rank) const {
    return std::find(losses.begin(), losses.end(), of_rank) != losses.end();
  }
};

}  // namespace shale::models
