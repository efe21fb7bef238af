#include "shale/models/training/step_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <utility>

#include "shale/base/log.h"
#include "shale/base/text.h"
#include "shale/comm/sums/ordered_sum.h"

namespace shale::models {

namespace {

constexpr size_t kFields = 6;  // numbers in a message, without the losses

}  // namespace

void StepExchange::start(const StepNews& mine) {
  mine_ = mine.losses;
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  const std::array<double, kFields> fields = {mine.busy_s,
                                              mine.stop ? 1.0 : 0.0,
                                              mine.save.is_time ? 1.0 : 0.0,
                                              count(mine.save.progress.finished),
                                              count(mine.save.progress.failed),
                                              mine.step_s};
  mine_.insert(mine_.end(), fields.begin(), fields.end());
  const auto width = static_cast<int64_t>(mine_.size());
  all_.resize(mine_.size() * static_cast<size_t>(group_.size()));
  work_ = group_.all_gather(make_view(mine_.data(), {width}),
                            make_view(all_.data(), {width * group_.size()}),
                            {.tag = "end of step", .async = true});
}

StepSummary StepExchange::take() {
  std::exchange(work_, comm::Work()).wait();
  const auto ranks = static_cast<size_t>(group_.size());
  StepSummary summary{.loss_sum = comm::ordered_sum(all_, ranks, mine_.size() - kFields, losses_)};
  for (size_t rank = 0; rank < ranks; ++rank) {
    const double* const fields = all_.data() + (rank + 1) * mine_.size() - kFields;
    summary.busy_s.push_back(fields[0]);
    if (fields[1] != 0) summary.ranks_to_stop.push_back(static_cast<int>(rank));
    const auto finished = static_cast<int64_t>(fields[3]), failed = static_cast<int64_t>(fields[4]);
    summary.step_s = std::max(summary.step_s, fields[5]);
    SaveNews& save = summary.save;
    save.is_time = save.is_time || fields[2] != 0;
    save.progress.finished = rank == 0 ? finished : std::min(save.progress.finished, finished);
    save.progress.failed = std::max(save.progress.failed, failed);
  }
  return summary;
}

StopVotes::~StopVotes() {
  // While an exception unwinds the stack, the destructor of the handle cancels the vote instead.
  if (std::uncaught_exceptions() == 0) {
    try {
      work_.wait();
    } catch (const std::exception& error) {
      log_warning("the ranks' last vote on whether to stop failed: ", error.what());
    }
  }
  drop_event();
}

void StopVotes::set_step(double step_s, int64_t micro_batches) {
  constexpr double kInterval_s = 0.25;
  const double at_once = kInterval_s * static_cast<double>(micro_batches) / step_s;
  every_ = step_s < kInterval_s ? 0 : std::max<int64_t>(static_cast<int64_t>(at_once), 1);
}

bool StopVotes::stops(int64_t micro, bool asked) {
  if (every_ == 0 || micro % every_ != 0) return false;
  bool stop = take();
  const auto vote = [&] {
    vote_ = asked ? 1 : 0;
    work_ = group_.all_reduce_max(make_view(&vote_, {1}), {.tag = "asked to stop", .async = true});
    event_ = context_.backend().record_event(context_.exec().stream);
    voting_ = true;
  };
  vote();
  if (micro == 0) {
    drop_event();  // the device may still execute the previous step
    stop = take() || stop;
    vote();
  }
  return stop;
}

// Returns the result of the last vote; false if there was none.
bool StopVotes::take() {
  if (!std::exchange(voting_, false)) return false;
  std::exchange(work_, comm::Work()).wait();
  if (event_ != nullptr) context_.backend().synchronize_event(event_);
  drop_event();
  return vote_ != 0;
}

void StopVotes::drop_event() {
  if (event_ != nullptr) context_.backend().destroy_event(std::exchange(event_, nullptr));
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
