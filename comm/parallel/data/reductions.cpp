#include "shale/comm/parallel/data/reductions.h"

namespace shale::comm {

void Reductions::begin_backward(const std::vector<FlatUnit*>& order, bool last) {
  finish(/*leave=*/0);  // finishes reductions that a failed backward left
  order_ = order;
  next_ = 0;
  last_ = last;
}

void Reductions::start_ready() {
  while (next_ < order_.size() && order_[next_]->ready()) start(*order_[next_++]);
  // Each rank may finish its own reductions at any time, because this needs no other rank.
  while (!in_flight_.empty() && in_flight_.front()->reduction_done()) finish_first();
}

void Reductions::start(FlatUnit& unit) {
  unit.start_reduce();
  in_flight_.push_back(&unit);
  if (!overlap_) finish(/*leave=*/0);
}

void Reductions::finish_first() {
  FlatUnit& unit = *in_flight_.front();
  in_flight_.pop_front();
  for (FlatGradient* gradient : unit.gradients()) gradient->finish_reduce(last_);
}

void Reductions::finish(size_t leave) {
  while (in_flight_.size() > leave) finish_first();
}

void Reductions::flush() {
  for (FlatUnit* unit : order_) {
    if (!unit->reduced()) start(*unit);
  }
  finish(/*leave=*/0);
  if (!last_) return;
  for (FlatUnit* unit : order_) {
    for (FlatGradient* gradient : unit->gradients()) gradient->finish_step();
  }
}

}  // namespace shale::comm
