#include <algorithm>

#include "shale/comm/watch/group_progress_internal.h"

namespace shale::comm {
GroupProgress::GroupProgress(MpiComm comm, std::vector<int> world_ranks)
    : comm_(std::move(comm)),
      world_ranks_(std::move(world_ranks)),
      arriving_(world_ranks_.size()),
      seen_(world_ranks_.size()) {}

void GroupProgress::exchange() {
  if (request_ != MPI_REQUEST_NULL) {
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return;
    seen_ = arriving_;
    const std::string problem = calls_.disagreement(seen_, world_ranks_);
    if (!problem.empty()) throw CommError(problem);
  }
  sent_ = mine_;
  check_mpi(MPI_Iallgather(&sent_, sizeof sent_, MPI_BYTE, arriving_.data(), sizeof sent_, MPI_BYTE,
                           comm_.get(), &request_),
            "MPI_Iallgather");
}

std::string GroupProgress::late_ranks() const {
  const uint64_t wanted = mine_.finished + 1;
  std::vector<int> not_called, not_finished;
  for (size_t r = 0; r < seen_.size(); ++r) {
    if (seen_[r].issued < wanted) not_called.push_back(world_ranks_[r]);
    if (seen_[r].finished < wanted) not_finished.push_back(world_ranks_[r]);
  }
  if (!not_called.empty()) {
    return cat(rank_list(not_called), not_called.size() == 1 ? " has" : " have", " not called it");
  }
  return cat("all ranks have called it; ", rank_list(not_finished),
             not_finished.size() == 1 ? " has" : " have", " not finished it");
}

bool GroupProgress::leave() {
  mine_.leaving = 1;
  if (request_ == MPI_REQUEST_NULL) {
    exchange();
    return false;
  }
  int done = 0;
  check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done == 0) return false;
  const auto left = [](const Progress& rank) { return rank.leaving != 0; };
  // All ranks see the same values, so all get the same answer.
  if (std::all_of(arriving_.begin(), arriving_.end(), left)) return true;
  exchange();
  return false;
}

}  // namespace shale::comm
