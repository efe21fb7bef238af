#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace shale::comm {

// Positions of ranks in the mesh of a run, for messages that name ranks. Thread-safe.
class RankPlaces {
 public:
  // Sets the positions by rank: "pipeline 1, tensor 0". Empty, the default: unknown.
  void set(std::vector<std::string> places);
  // Formats ranks with their positions: "rank 3 (pipeline 1, tensor 0)", or "ranks 2,3 (pipeline 1,
  // tensor 0; pipeline 1, tensor 1)". More than four ranks are formatted without positions.
  std::string list(std::vector<int> ranks) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> places_;
};

}  // namespace shale::comm
