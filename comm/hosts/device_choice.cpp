#include "shale/comm/hosts/device_choice.h"

#include <algorithm>
#include <map>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

std::string list_of(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += cat(i == 0 ? "" : ", ", ranks[i]);
  }
  return ranks.size() > kMost ? cat(text, " and ", ranks.size() - kMost, " more") : text;
}

// Lists the ranks without a GPU.
std::vector<int> without_gpu(const std::vector<RankGpus>& ranks) {
  std::vector<int> without;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].gpus.ids.empty()) without.push_back(static_cast<int>(rank));
  }
  return without;
}

}  // namespace

Device choose_device(const std::vector<RankGpus>& ranks, int rank, const DeviceWish& wish) {
  const std::vector<int> without = without_gpu(ranks);
  if (without.size() == ranks.size() && !wish.gpu) return {};
  if (!without.empty()) {
    const RankGpus& first = ranks[static_cast<size_t>(without.front())];
    const std::string why = cat("rank ", list_of(without), " on host ", first.host,
                                " sees no GPU: ", first.gpus.why_none);
    if (without.size() == ranks.size()) throw UnavailableError("device: " + why);
    throw UnavailableError(
        cat("device: ", why, "; other ranks see GPUs, expected one for every rank"));
  }
  // Every rank evaluates all ranks' choices, so that all ranks throw if one of them gets no GPU.
  std::map<std::pair<std::string, std::string>, std::vector<int>> users;  // ranks by host and GPU
  Device device{.type = DeviceType::kCuda};
  for (size_t other = 0; other < ranks.size(); ++other) {
    const auto& [host, gpus, identity] = ranks[other];
    const auto users_of = [&](const std::string& id) -> auto& {
      return users[{host + identity, id}];
    };
    const auto least = std::min_element(
        gpus.ids.begin(), gpus.ids.end(), [&](const std::string& a, const std::string& b) {
          return users_of(a).size() < users_of(b).size();
        });
    if (!users_of(*least).empty() && !wish.may_share) {
      throw UnavailableError(cat("device: on host ", host, " rank ", other,
                                 " has no free GPU: all ", gpus.ids.size(), " GPUs are used (GPU ",
                                 *least, " by rank ", list_of(users_of(*least)),
                                 "); use at most one rank per GPU, or --comm mpi, with which "
                                 "ranks share GPUs and exchange data through host memory"));
    }
    users_of(*least).push_back(static_cast<int>(other));
    if (static_cast<int>(other) == rank) {
      device.index = static_cast<int>(least - gpus.ids.begin());
    }
  }
  return device;
}

}  // namespace shale::comm
