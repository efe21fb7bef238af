#include "shale/models/training/step_exchange.h"

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

}  // namespace shale::models
