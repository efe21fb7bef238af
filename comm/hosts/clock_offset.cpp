#include "shale/comm/hosts/clock_offset.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace shale::comm {
namespace {

constexpr size_t kRounds = 16;  // rounds of all-gathers; each narrows the bounds of the offset
constexpr int64_t kPair = 2;    // values per rank: offset, error

}  // namespace

ClockOffset measure_clock_offset(ProcessGroup& group, const std::string& host_identity,
                                 const HostClock& clock) {
  const auto ranks = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  const std::vector<std::string> hosts = group.all_gather_bytes(host_identity, "host names");
  std::array<int64_t, kRounds> before_of_first{}, before{}, after{};
  std::vector<int64_t> begins(ranks);
  for (size_t i = 0; i < kRounds; ++i) {
    before[i] = clock();
    group.all_gather(make_view(&before[i], {1}), make_view(begins.data(), {group.size()}),
                     {.tag = "clock"});
    after[i] = clock();
    before_of_first[i] = begins.front();
  }
  std::array<int64_t, kRounds> after_of_first = after;
  group.broadcast(make_view(after_of_first.data(), {int64_t{kRounds}}), 0, {.tag = "clock"});
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < kRounds; ++i) {
    low = std::max(low, before[i] - after_of_first[i]);
    high = std::min(high, after[i] - before_of_first[i]);
  }
  std::array<int64_t, kPair> mine = {low + (high - low) / 2, (high - low + 1) / 2};
  std::vector<int64_t> all(ranks * kPair);
  group.all_gather(make_view(mine.data(), {kPair}), make_view(all.data(), {kPair * group.size()}),
                   {.tag = "clock"});
  const auto lowest =
      static_cast<size_t>(std::find(hosts.begin(), hosts.end(), hosts[rank]) - hosts.begin());
  if (lowest == 0) return {};
  return {.ns = all[kPair * lowest], .error_ns = all[kPair * lowest + 1]};
}

}  // namespace shale::comm
