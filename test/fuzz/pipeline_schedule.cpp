// The first four bytes choose a schedule. Each following pair of bytes names two adjacent actions
// in a rank's list to swap, or an action to change.
#include <algorithm>

#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

using namespace comm;

Schedule schedule_of(const uint8_t* data) {
  const auto kind = static_cast<ScheduleKind>(data[0] % 5);
  const int ranks = data[1] % 6 + 1, micros = data[3] % 12 + 1;
  int chunks = 1;
  if (kind == ScheduleKind::kInterleaved) chunks = data[2] % 3 + 1;
  if (kind == ScheduleKind::kZbV) chunks = 2;
  return make_schedule(kind, ranks, chunks,
                       kind == ScheduleKind::kInterleaved ? micros * ranks : micros);
}

void change(Schedule& schedule, uint8_t where, uint8_t how) {
  auto& list = schedule.lists[where % schedule.lists.size()];
  const size_t at = static_cast<size_t>(how >> 1) % list.size();
  if ((how & 1) == 0) return std::swap(list[at], list[(at + 1) % list.size()]);
  list[at] = {.kind = static_cast<ActionKind>(where % 4),
              .chunk = static_cast<int>(where >> 6) - 1,
              .micro = static_cast<int>(where) - 8};
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  if (size < 4) return 0;
  Schedule schedule = schedule_of(data);
  for (size_t i = 4; i + 1 < std::min<size_t>(size, 64); i += 2) {
    change(schedule, data[i], data[i + 1]);
  }
  double one = 0;
  if (!fuzz::accepts<ConfigError>([&] { one = simulate(schedule).makespan; })) return 0;
  // A schedule that ends with one slot must also end with more slots, and no later.
  for (const int slots : {2, 3}) {
    fuzz::require(simulate(schedule, {.slots = slots}).makespan <= one, "more room is no slower");
  }
  const Simulation run = simulate(schedule);
  for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
    fuzz::require(run.ranks[rank].size() == schedule.lists[rank].size(), "all actions are done");
    fuzz::require(run.idle[rank] >= 0, "no rank works longer than the step takes");
  }
  return 0;
}
