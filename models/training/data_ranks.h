#pragma once

#include <algorithm>
#include <vector>

namespace shale::models {

// The ranks of a run as far as data goes: those that work on one micro-batch together, as the
// stages of a pipeline do, are one.
struct DataRanks {
  int rank = 0;  // this rank's number among them
  int count = 1;
  std::vector<int> losses = {};  // by this number: the rank that has the losses

  // Whether what this rank reads counts: of the ranks that read the same, one does. With sequences
  // that are cut, each of their ranks reads tokens of its own.
  bool counts = true;

  bool has_losses(int of_rank) const {
    return std::find(losses.begin(), losses.end(), of_rank) != losses.end();
  }
};

}  // namespace shale::models
