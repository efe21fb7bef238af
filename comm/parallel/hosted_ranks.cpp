#include "shale/comm/parallel/hosted_ranks.h"

#include <utility>

#include "shale/base/error.h"

namespace shale::comm {

HostedRanks::HostedRanks(Context& context, int count)
    : context_(context), count_(count), fibers_(count > 1 ? count : 0), all_(*this, count) {}

void HostedRanks::run(const std::function<void(int rank)>& body) {
  if (count_ == 1) return body(0);
  std::vector<Context::PassState> states;
  for (int i = 0; i < count_; ++i) states.push_back(context_.copy_pass_state());
  fibers_.run(body,
              [&](int rank) { context_.exchange_pass_state(states[static_cast<size_t>(rank)]); });
  for (const Context::PassState& state : states) context_.continue_from(state);
}

void HostedRanks::Meeting::wait(std::string_view what, const std::function<void()>& act) {
  const int self = ranks_.current();
  if (members_ <= 1 || self < 0) return act();
  if (round_ == nullptr) round_ = std::make_shared<Round>(Round{std::string(what), self});
  const std::shared_ptr<Round> round = round_;
  if (round->what != what) {
    throw CommError(cat("rank ", self, " of this process called ", what, ", but rank ",
                        round->first, " called ", round->what,
                        "; expected the same collectives on all of them"));
  }
  if (++round->arrived == members_) {
    round_ = nullptr;
    act();
    round->is_done = true;
    return;
  }
  try {
    ranks_.fibers_.park(what, [round] { return round->is_done; });
  } catch (...) {
    round_ = nullptr;  // discards the failed round, so that the next run() starts a new one
    throw;
  }
}

}  // namespace shale::comm
