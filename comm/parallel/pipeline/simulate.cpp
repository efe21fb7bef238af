#include "shale/comm/parallel/pipeline/simulate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

using enum ActionKind;

bool is_forward(const Action& action) {
  return action.kind == kForward;
}

// Messages of one link, or between consecutive stages on one rank. Index: micro-batch.
struct Link {
  std::vector<double> sent;   // arrival times
  std::vector<double> taken;  // start times of the receiving actions
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule),
        place_(schedule.placement),
        options_(options),
        next_(schedule.lists.size()),
        time_(schedule.lists.size()),
        has_taken_(schedule.lists.size()),
        held_(schedule.lists.size()) {
    result_.idle.resize(schedule.lists.size());
    result_.held.resize(schedule.lists.size());
    result_.ranks.resize(schedule.lists.size());
    const auto stages = static_cast<size_t>(place_.stages());
    if (options_.times.empty()) options_.times.resize(stages);
    if (options_.times.size() != stages) {
      throw InternalError(
          cat("simulate: times of ", options_.times.size(), " stages, expected ", stages));
    }
  }

  Simulation run() {
    for (bool any = true; any;) {
      any = false;
      for (int rank = 0; rank < place_.ranks; ++rank) {
        while (step(rank)) any = true;
      }
    }
    for (int rank = 0; rank < place_.ranks; ++rank) {
      if (action_of(rank) != nullptr) throw ConfigError(ring_of(rank));
      result_.makespan = std::max(result_.makespan, time_[size_t(rank)]);
    }
    for (int rank = 0; rank < place_.ranks; ++rank) {
      double busy = 0;
      for (const TimedAction& done : result_.ranks[size_t(rank)]) {
        busy += duration(rank, done.action);
      }
      result_.idle[size_t(rank)] = result_.makespan - busy;
    }
    return std::move(result_);
  }

 private:
  // Links from which an action receives, and to which it sends.
  using LinkKey = std::pair<bool, int>;  // direction (true: forward) and receiving stage
  struct Ends {
    std::optional<LinkKey> from, to;
  };

  const Action* action_of(int rank) const {
    const auto& list = schedule_.lists[size_t(rank)];
    return next_[size_t(rank)] < list.size() ? &list[next_[size_t(rank)]] : nullptr;
  }

  Ends ends_of(int rank, const Action& action) const {
    if (action.kind == kBackwardWeights) return {};
    const int stage = place_.stage_of(rank, action.chunk);
    const bool forward = is_forward(action);
    const int before = forward ? stage - 1 : stage + 1, after = forward ? stage + 1 : stage - 1;
    const auto is_stage = [&](int s) { return s >= 0 && s < place_.stages(); };
    Ends ends;
    if (is_stage(before)) ends.from = LinkKey{forward, stage};
    if (is_stage(after)) ends.to = LinkKey{forward, after};
    return ends;
  }

  double duration(int rank, const Action& action) const {
    const StageTimes& times = options_.times[size_t(place_.stage_of(rank, action.chunk))];
    switch (action.kind) {
      case kForward: return times.forward;
      case kBackward: return times.backward_input + times.backward_weights;
      case kBackwardInput: return times.backward_input;
      case kBackwardWeights: return times.backward_weights;
    }
    return 0;
  }

  // Returns the rank that an action waits for; nullopt if the action can run.
  std::optional<int> waits_for(int rank, const Action& action) const {
    const Ends ends = ends_of(rank, action);
    const auto number = size_t(action.micro);
    if (ends.from && !has_taken_[size_t(rank)] && messages(*ends.from).sent.size() <= number) {
      const auto [forward, stage] = *ends.from;
      return place_.rank_of(forward ? stage - 1 : stage + 1);
    }
    if (ends.to && !has_room(rank, *ends.to, number)) return place_.rank_of(ends.to->second);
    return {};
  }

  const Link& messages(const LinkKey& key) const {
    static const Link kNone;
    const auto found = links_.find(key);
    return found != links_.end() ? found->second : kNone;
  }

  // A message to a stage on the same rank needs no free slot.
  bool has_room(int rank, const LinkKey& to, size_t number) const {
    if (place_.rank_of(to.second) == rank) return true;
    return messages(to).taken.size() + size_t(options_.slots) > number;
  }

  // Receives the message of a rank's next action, if it has arrived. The link then has room for
  // another message, even if the action itself still waits for room to send.
  bool take(int rank, const Ends& ends, size_t number) {
    if (!ends.from || has_taken_[size_t(rank)]) return false;
    Link& link = links_[*ends.from];
    if (link.sent.size() <= number) return false;
    double& now = time_[size_t(rank)];
    now = std::max(now, link.sent[number]);
    link.taken.push_back(now);
    has_taken_[size_t(rank)] = true;
    return true;
  }

  // Runs the next action of a rank, or receives its message. Returns false if it can do neither.
  bool step(int rank) {
    const Action* action = action_of(rank);
    if (action == nullptr) return false;
    const auto number = size_t(action->micro);
    const Ends ends = ends_of(rank, *action);
    const bool took = take(rank, ends, number);
    if (waits_for(rank, *action)) return took;
    double& now = time_[size_t(rank)];
    const double begin = now;
    now += duration(rank, *action);
    if (ends.to) {
      Link& link = links_[*ends.to];
      const auto slots = size_t(options_.slots);
      const bool is_link = place_.rank_of(ends.to->second) != rank;
      if (is_link && number >= slots) now = std::max(now, link.taken[number - slots]);
      link.sent.push_back(is_link ? now + options_.message : now);
    }
    count_held(rank, *action);
    result_.ranks[size_t(rank)].push_back({*action, begin, now});
    has_taken_[size_t(rank)] = false;
    ++next_[size_t(rank)];
    return true;
  }

  void count_held(int rank, const Action& action) {
    int& held = held_[size_t(rank)];
    if (is_forward(action)) ++held;
    if (action.kind == kBackward || action.kind == kBackwardWeights) --held;
    result_.held[size_t(rank)] = std::max(result_.held[size_t(rank)], held);
  }

  // Describes a cycle of ranks that wait for each other. Starts the search at a waiting rank.
  std::string ring_of(int rank) const {
    std::vector<int> waiting;
    while (action_of(rank) != nullptr &&
           std::find(waiting.begin(), waiting.end(), rank) == waiting.end()) {
      waiting.push_back(rank);
      rank = waits_for(rank, *action_of(rank)).value();
    }
    std::string text = "pipeline schedule: deadlock:";
    for (const int r : waiting) {
      text += cat(r == waiting.front() ? " rank " : "; rank ", r, " waits in ",
                  describe(*action_of(r)), " for rank ", *waits_for(r, *action_of(r)));
    }
    return text + (action_of(rank) == nullptr ? ", which has no actions left" : "");
  }

  const Schedule& schedule_;
  const StagePlacement place_;
  SimulationOptions options_;
  std::map<LinkKey, Link> links_;
  std::vector<size_t> next_;  // for each rank: index of the next action in its list
  std::vector<double> time_;
  std::vector<bool> has_taken_;  // for each rank: it has received its next action's message
  std::vector<int> held_;
  Simulation result_;
};

}  // namespace

Simulation simulate(const Schedule& schedule, const SimulationOptions& options) {
  check_schedule(schedule);
  if (options.slots < 1)
    throw ConfigError(cat("simulate: ", options.slots, " slots, expected 1 or more"));
  return Simulator(schedule, options).run();
}

}  // namespace shale::comm
