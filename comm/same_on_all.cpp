#include "shale/comm/same_on_all.h"

#include "shale/base/error.h"
#include "shale/comm/fingerprint.h"

namespace shale::comm {

void require_same_on_all(ProcessGroup& group, std::string_view what, std::string_view mine) {
  const std::vector<std::string> all = group.all_gather_bytes(mine, what);
  std::vector<int> others;
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[static_cast<size_t>(rank)] != all.front()) others.push_back(rank);
  }
  if (others.empty()) return;
  throw CommError(cat(what, ": rank 0 has ", all.front(), "; ", rank_list(others),
                      others.size() == 1 ? " has " : " differ, the first has ",
                      all[static_cast<size_t>(others.front())],
                      "; expected the same on all ranks"));
}

}  // namespace shale::comm
