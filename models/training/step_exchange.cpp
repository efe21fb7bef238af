#include "shale/models/training/step_exchange.h"

#include <algorithm>
#include <cmath>

#include "shale/base/text.h"
#include "shale/comm/ordered_sum.h"

namespace shale::models {

StepSummary exchange_step(comm::ProcessGroup& group, const StepNews& mine) {
  std::vector<double> row = mine.losses;
  row.push_back(mine.busy_s);
  row.push_back(mine.stop ? 1 : 0);
  const auto width = static_cast<int64_t>(row.size());
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<double> rows(row.size() * ranks);
  group.host().all_gather(make_view(row.data(), {width}),
                          make_view(rows.data(), {width * group.size()}), {.tag = "end of step"});
  StepSummary summary{.loss_sum = comm::ordered_sum(rows, ranks, mine.losses.size())};
  for (size_t rank = 0; rank < ranks; ++rank) {
    const double* const end = rows.data() + (rank + 1) * row.size();
    summary.busy_s.push_back(end[-2]);
    if (end[-1] != 0) summary.ranks_to_stop.push_back(static_cast<int>(rank));
  }
  return summary;
}

bool anyone_stops(comm::ProcessGroup& group, bool mine) {
  int64_t stop = mine ? 1 : 0;
  group.host().all_reduce_max(make_view(&stop, {1}), {.tag = "asked to stop"});
  return stop != 0;
}

std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses) {
  const bool bad =
      !std::all_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); });
  const std::vector<std::string> all = group.all_gather_bytes(bad ? "bad" : "", "losses");
  std::string ranks;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) ranks += cat(ranks.empty() ? " (on rank " : ", ", rank);
  }
  return ranks.empty() ? ranks : ranks + ")";
}

}  // namespace shale::models
