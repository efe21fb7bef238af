#include "shale/comm/parallel/data/unit_order.h"

#include <algorithm>
#include <utility>

namespace shale::comm {

std::vector<FlatUnit*> UnitOrder::forward(FlatUnit& unit, int depth) {
  // If forward reaches the first unit again, the previous forward had no backward.
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

// Gathers `unit`, and units ahead of time. chosen: which ones; empty: take `recorded`, the next
// units in the recorded order.
void UnitGathers::gather(FlatUnit& unit, const std::vector<FlatUnit*>& chosen,
                         const std::vector<FlatUnit*>& recorded) {
  unit.start_unshard();
  if (shared_.options.overlap) {  // without overlap, gathering ahead gains nothing
    const std::vector<FlatUnit*>& next = chosen.empty() ? recorded : chosen;
    const size_t gathered = chosen.empty() ? static_cast<size_t>(prefetch_) : chosen.size();
    for (size_t i = 0; i < next.size(); ++i) {
      i < gathered ? next[i]->start_unshard() : next[i]->fetch_masters();
    }
  }
  unit.unshard();
}

void UnitGathers::before_forward(FlatUnit& unit) {
  gather(unit, unit.forward_prefetch, order_.forward(unit, ahead_));
}

void UnitGathers::after_forward(FlatUnit& unit) {
  const AutogradState& state = shared_.context().autograd();
  if (in_backward()) return;  // a recomputation: backward still uses the parameters
  if (state.enabled && state.training) {
    unit.reshard_after_forward();
  } else {  // no backward follows: always free the values
    unit.reshard();
  }
}

void UnitGathers::before_backward(FlatUnit& unit) {
  gather(unit, unit.backward_prefetch, order_.backward(unit, unit.encloses_units(), ahead_));
}

}  // namespace shale::comm
