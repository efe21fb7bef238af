#include "shale/comm/parallel/data/gradient_sync.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"

namespace shale::comm {

GradientSync::GradientSync(ShardingContext& shared, UnitGathers& gathers)
    : shared_(shared), gathers_(gathers), reductions_(shared.options.overlap) {
  // Allow one pending reduction, which overlaps with the computation of the next unit's gradients.
  if (shared.options.stage >= 2) {
    shared.before_gradient = [this] { reductions_.finish(/*leave=*/1); };
  }
}

void GradientSync::add_unit(FlatUnit& unit) {
  units_.push_back(&unit);
  for (FlatGradient* gradient : unit.gradients()) {
    gradient->add_ready_hook(
        [this, &unit](const FlatEntry& entry) { gradient_ready(unit, entry); });
  }
}

void GradientSync::set_order(const std::vector<FlatUnit*>& order) {
  chunks_.assign(1, {});
  for (FlatUnit* unit : order) {
    const auto number = static_cast<size_t>(unit->chunk());
    chunks_.resize(std::max(chunks_.size(), number + 1));
    Chunk& chunk = chunks_[number];
    chunk.units.push_back(unit);
    if (unit->trainable()) chunk.order.insert(chunk.order.begin(), unit);
  }
}

bool GradientSync::must_reduce() const {
  return !shared_.single() || shared_.options.stage > 0 || shared_.options.reproducible ||
         shared_.groups.tensor != nullptr;
}

bool GradientSync::reduces() const {
  return must_reduce() && !no_sync_ &&
         (last_ || shared_.options.stage >= 2 || shared_.options.reproducible);
}

void GradientSync::set_no_sync(bool no_sync) {
  if (no_sync && shared_.options.reproducible) {
    throw ConfigError("data parallel: reproducible reduces every micro-batch; do not use no_sync");
  }
  no_sync_ = no_sync;
}

void GradientSync::begin_backward(bool last, int chunk) {
  if (chunk < 0 || static_cast<size_t>(chunk) >= chunks_.size()) {
    throw InternalError(
        cat("data parallel: chunk is ", chunk, ", expected 0 to below ", chunks_.size()));
  }
  chunk_ = static_cast<size_t>(chunk);
  if (last) check_micro_batches();
  announced_ = true;
  last_ = last;
}

// Changes only what can be undone, because the backward that begins may belong to another model.
void GradientSync::backward_begins() {
  reached_ = false;
  for (FlatUnit* unit : chunk().units) unit->prepare_backward();
  if (announced_) backward_reaches();
}

void GradientSync::backward_reaches() {
  if (std::exchange(reached_, true)) return;
  if (!announced_ && chunks_.size() > 1) {
    throw InternalError(cat("data parallel: a backward of a model with ", chunks_.size(),
                            " chunks; call begin_backward(last, chunk) first"));
  }
  if (last_) check_micro_batches();
  ++chunk().in_tree;
  reductions_.begin_backward(chunk().order, last_);
  gathers_.begin_backward();
  for (FlatUnit* unit : chunk().units) unit->begin_backward();
}

void GradientSync::backward_ends() {
  if (reached_ && reduces()) {
    flush();
  } else if (reached_ && must_reduce()) {
    chunk().has_local = true;
  }
  for (FlatUnit* unit : chunk().units) {
    for (FlatGradient* gradient : unit->gradients()) gradient->end_backward();
  }
  if (!reached_) return;
  for (FlatUnit* unit : chunk().units) unit->reshard();
  if (last_) chunk().in_tree = 0;
  announced_ = false;
  if (std::exchange(last_, true)) report_unused();
  chunk_ = 0;
}

// Starts the unit's reduction, because this backward adds nothing more to the unit's gradients.
void GradientSync::after_last_backward(FlatUnit& unit) {
  if (reduces() && unit.trainable() && !unit.reduced()) reductions_.start(unit);
}

void GradientSync::gradient_ready(FlatUnit& unit, const FlatEntry& entry) {
  backward_reaches();
  if (static_cast<size_t>(unit.chunk()) != chunk_) {
    throw InternalError(cat("data parallel: begin_backward() was called for chunk ", chunk_,
                            ", but backward has reached ", entry.parameter->full_name(),
                            " of chunk ", unit.chunk()));
  }
  if (!unit.gradient_ready(entry)) return;
  if (!must_reduce()) {
    if (last_ && !no_sync_) unit.finish_alone();
    return;
  }
  // In stage 3 reductions start when the backward of a unit's module ends.
  const int stage = shared_.options.stage;
  if (!reduces() || stage >= 3 || (stage < 2 && !shared_.options.overlap)) return;
  reductions_.start_ready();
}

void GradientSync::flush() {
  reductions_.flush();
  chunk().has_local = false;
  chunk().reduced = true;
  if (last_ && chunks_.size() == 1 && shared_.groups.stages == nullptr) add_ties();
}

void GradientSync::finish_gradients() {
  for (chunk_ = 0; chunk_ < chunks_.size(); ++chunk_) finish_chunk();
  chunk_ = 0;
  add_ties();
}

void GradientSync::finish_chunk() {
  if (!must_reduce()) {
    for (FlatUnit* unit : chunk().order) unit->finish_alone();
    return;
  }
  check_reduced(chunk_);
  if (!chunk().reduced) {  // this rank ran no backward
    for (FlatUnit* unit : chunk().order) {
      unit->prepare_backward();
      unit->begin_backward();
    }
    reductions_.begin_backward(chunk().order, /*last=*/true);
    flush();
  }
  chunk().reduced = false;
}

// Adds the gradients of a tied table's two uses, after both gradients are complete.
void GradientSync::add_ties() {
  const PipelineStages* const stages = shared_.groups.stages;
  for (FlatUnit* unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      const bool is_tied = buffer->spec().traits.use == TableUse::kTied;
      if (is_tied && stages != nullptr && stages->tie != nullptr) {
        buffer->gradient()->add_over(*stages->tie);
      }
    }
    if (unit->apart() == nullptr) continue;
    FlatGradient& apart = unit->apart()->gradient();
    const Parameter& first = *apart.layout().entries.front().parameter;
    for (FlatUnit* other : units_) {
      for (const auto& buffer : other->buffers()) {
        if (buffer->find(first) != nullptr) buffer->gradient()->add(apart);
      }
    }
  }
}

void GradientSync::for_each_flag(const std::function<void(bool&)>& visit) {
  for (Chunk& chunk : chunks_) {
    visit(chunk.reduced);
    visit(chunk.has_local);
  }
  for (FlatUnit* unit : units_) {
    for (FlatGradient* gradient : unit->gradients()) gradient->for_each_flag(visit);
  }
}

void GradientSync::check_reduced(size_t chunk) const {
  if (!chunks_[chunk].has_local) return;
  throw ConfigError(
      "data parallel: the last begin_backward() was called with last = false, or without "
      "synchronisation, so the ranks' gradients are different; set last = true before the last "
      "backward of a step");
}

void GradientSync::check_all_reduced() const {
  for (size_t i = 0; i < chunks_.size(); ++i) check_reduced(i);
}

// Checks the number of micro-batches; called before the last backward of a loss.
void GradientSync::check_micro_batches() const {
  const auto count = static_cast<uint64_t>(chunk().in_tree + 1);
  if (!shared_.options.reproducible || std::has_single_bit(count)) return;
  throw ConfigError(cat("data parallel: ", count,
                        " micro-batches per rank, expected a power of two for reproducible"));
}

std::vector<std::string> GradientSync::unused_parameters() const {
  std::vector<std::string> names;
  for (const FlatUnit* unit : units_) {
    for (const FlatEntry* entry : unit->unreached()) names.push_back(entry->parameter->full_name());
  }
  return names;
}

void GradientSync::report_unused() {
  if (warned_unused_) return;
  const std::vector<std::string> names = unused_parameters();
  if (names.empty()) return;
  warned_unused_ = true;
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) list += cat(" ", names[i]);
  log_warning("backward did not reach ", names.size(),
              " parameters, whose gradients count as zero:", list,
              names.size() > kShown ? " ..." : "");
}

}  // namespace shale::comm
