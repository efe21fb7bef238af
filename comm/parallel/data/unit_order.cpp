#include "shale/comm/parallel/data/unit_order.h"

#include <algorithm>
#include <utility>

#include "shale/comm/parallel/data/flat_unit.h"

namespace shale::comm {

void start_in_order(const std::vector<FlatUnit*>& units, size_t gathered) {
  for (size_t i = 0; i < units.size(); ++i) {
    if (i < gathered) {
      units[i]->start_unshard();
    } else {
      units[i]->fetch_masters();
    }
  }
}

std::vector<FlatUnit*> UnitOrder::forward(FlatUnit& unit, int depth) {
  // A forward without backward was followed by another one.
  if (!seen_.empty() && seen_.front() == &unit) order_ = std::exchange(seen_, {});
  const size_t position = seen_.size();
  seen_.push_back(&unit);
  if (position >= order_.size() || order_[position] != &unit) return {};
  const size_t end = std::min(order_.size(), position + 1 + static_cast<size_t>(depth));
  return {order_.begin() + int64_t(position) + 1, order_.begin() + int64_t(end)};
}

void UnitOrder::begin_backward() {
  if (!seen_.empty()) order_ = std::exchange(seen_, {});
  position_ = order_.size();
}

std::vector<FlatUnit*> UnitOrder::backward(const FlatUnit& unit, bool encloses_units, int depth) {
  if (!encloses_units) {
    size_t at = position_;
    while (at > 0 && order_[at - 1] != &unit) --at;
    if (at == 0) return {};
    position_ = at - 1;
  }
  std::vector<FlatUnit*> next;
  for (size_t i = position_; i > 0 && next.size() < static_cast<size_t>(depth); --i) {
    next.push_back(order_[i - 1]);
  }
  return next;
}

}  // namespace shale::comm
