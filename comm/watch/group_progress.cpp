#include <algorithm>
#include <utility>

#include "shale/comm/watch/group_progress_internal.h"

namespace shale::comm {
namespace {

constexpr int kTag = 1;
// Pause between two exchanges, for each rank. With it, what a rank sends per second does not depend
// on the number of ranks.
constexpr std::chrono::microseconds kPausePerRank{250};

}  // namespace

GroupProgress::GroupProgress(MpiComm comm, std::vector<int> world_ranks)
    : comm_(std::move(comm)),
      world_ranks_(std::move(world_ranks)),
      arriving_(world_ranks_.size()),
      seen_(world_ranks_.size()) {}

bool GroupProgress::gather() {
  const int ranks = static_cast<int>(world_ranks_.size()), me = comm_.rank();
  if (!pending()) {
    arriving_[0] = mine_;
    held_ = 1;
  }
  for (;;) {
    int done = 0;
    check_mpi(MPI_Testall(2, requests_, &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done == 0) return false;
    held_ += std::exchange(incoming_, 0);
    if (held_ == ranks) break;
    const GatherRound round(me, ranks, held_);
    incoming_ = round.count;
    const int bytes = incoming_ * static_cast<int>(sizeof(Progress));
    check_mpi(MPI_Irecv(&arriving_[static_cast<size_t>(held_)], bytes, MPI_BYTE, round.from, kTag,
                        comm_.get(), &requests_[0]),
              "MPI_Irecv");
    check_mpi(
        MPI_Isend(arriving_.data(), bytes, MPI_BYTE, round.to, kTag, comm_.get(), &requests_[1]),
        "MPI_Isend");
  }
  std::rotate_copy(arriving_.begin(), arriving_.end() - me, arriving_.end(), seen_.begin());
  held_ = 0;
  return true;
}

void GroupProgress::exchange() {
  if (!pending() && Clock::now() < next_) return;
  if (!gather()) return;
  next_ = Clock::now() + kPausePerRank * world_ranks_.size();
  const std::string problem = calls_.disagreement(seen_, world_ranks_);
  if (!problem.empty()) throw CommError(problem);
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
  // All ranks see the same values, so all get the same answer.
  return gather() && std::ranges::all_of(seen_, [](const Progress& p) { return p.leaving != 0; });
}

}  // namespace shale::comm
