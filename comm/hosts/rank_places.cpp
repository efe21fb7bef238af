#include "shale/comm/hosts/rank_places.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/fingerprint.h"

namespace shale::comm {

void RankPlaces::set(std::vector<std::string> places) {
  const std::lock_guard lock(mutex_);
  places_ = std::move(places);
}

std::string RankPlaces::list(std::vector<int> ranks) const {
  constexpr size_t kPlaced = 4;
  std::sort(ranks.begin(), ranks.end());
  const std::string numbers = rank_list(ranks);
  const std::lock_guard lock(mutex_);
  if (ranks.empty() || ranks.size() > kPlaced) return numbers;
  std::string text;
  for (const int rank : ranks) {
    if (rank < 0 || static_cast<size_t>(rank) >= places_.size()) return numbers;
    text += cat(text.empty() ? "" : "; ", places_[static_cast<size_t>(rank)]);
  }
  return cat(numbers, " (", text, ")");
}

}  // namespace shale::comm
