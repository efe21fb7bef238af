#include "shale/comm/watch/issued_calls.h"

#include "shale/base/error.h"

namespace shale::comm {

void IssuedCalls::add(const Fingerprint& call, Progress& mine) {
  ++mine.issued;
  mine.history = (mine.history ^ hash_of(call)) * 0x9E3779B97F4A7C15u;
  mine.balance += call.balance;
  recent_.push_back({mine.issued, mine.history, call});
  if (recent_.size() > kKept) recent_.pop_front();
}

const IssuedCalls::Step* IssuedCalls::find(uint64_t number) const {
  if (recent_.empty() || number < recent_.front().number) return nullptr;
  const uint64_t index = number - recent_.front().number;
  return index < recent_.size() ? &recent_[index] : nullptr;
}

std::string IssuedCalls::disagreement(std::span<const Progress> ranks,
                                      std::span<const int> world_ranks) const {
  uint64_t balance = 0;
  bool together = true;
  for (size_t r = 0; r < ranks.size(); ++r) {
    balance += ranks[r].balance;
    together = together && ranks[r].issued == ranks.front().issued;
    const Step* const step = find(ranks[r].issued);
    if (step == nullptr || step->history == ranks[r].history) continue;
    return cat("ranks disagree: the first ", step->number, " collectives of ",
               rank_list({world_ranks[r]}), " differ from those of this rank; the last of this ",
               "rank is ", describe(step->call));
  }
  if (!together || balance == 0) return {};
  return cat("ranks disagree: in one of the first ", ranks.front().issued,
             " collectives, an all_to_all_v, a sender's and a receiver's counts differ");
}

}  // namespace shale::comm
