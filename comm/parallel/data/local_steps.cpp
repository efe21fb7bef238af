#include "shale/comm/parallel/data/local_steps.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {
namespace {

void check(const LocalStepsOptions& options, const ShardGroups& groups) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) throw ConfigError(cat("local steps: ", what...));
  };
  want(groups.replicate != nullptr && groups.replicate->size() > 1,
       "expected hybrid sharding over two or more replicas, found one");
  want(options.every >= 1, "every is ", options.every, ", expected 1 or more");
  want(options.start >= 0, "start is ", options.start, ", expected 0 or more");
  want(options.lr > 0, "lr is ", options.lr, ", expected more than 0");
  want(options.momentum >= 0 && options.momentum < 1, "momentum is ", options.momentum,
       ", expected [0, 1)");
}

Tensor zeros_in(offload::HostTier& tier, int64_t count, std::string_view what) {
  Tensor x = tier.allocate(count, DType::kF32, MemoryTag::kOptimizer, what);
  kernels::fill(x.exec(), {.y = x, .value = 0});
  return x;
}

}  // namespace

LocalSteps::LocalSteps(DataParallel& parallel, offload::HostTier& tier,
                       const LocalStepsOptions& options)
    : parallel_(parallel), tier_(tier), options_(options) {
  check(options, parallel.shared().groups);
  int64_t total = 0, before = 0, largest = 0;
  for (const OptimShard& shard : parallel.shards()) {
    if (&shard.master.context() != &parallel.shared().context()) {
      throw ConfigError(cat("local steps: the masters of ", shard.name,
                            " are not on the device; do not offload"));
    }
    FlatBuffer* const buffer = parallel.place_of(*shard.spans.front().parameter).buffer;
    const int64_t count = shard.master.numel();
    total += buffer->layout().numel;
    largest = std::max(largest, count);
    units_.push_back({.buffer = buffer,
                      .shard = shard,
                      .turn = 0,
                      .outer = {.anchor = zeros_in(tier, count, shard.name),
                                .momentum = zeros_in(tier, count, shard.name)}});
  }
  for (Tensor& staged : staged_) staged = zeros_in(tier, largest, "outer gradients");
  for (Unit& unit : units_) {  // `before` is equal on all ranks, so `turn` is too
    if (options.in_turn && total > 0) {
      unit.turn = static_cast<int64_t>(static_cast<double>(options.every) *
                                       static_cast<double>(before) / static_cast<double>(total));
    }
    before += unit.buffer->layout().numel;
  }
}

void LocalSteps::begin_step(int64_t step) {
  if (!is_local(step)) {
    stale_ = true;
  } else {
    settle();
  }
}

void LocalSteps::settle() {
  if (!std::exchange(stale_, false)) return;
  for (const Unit& unit : units_) download(unit, unit.outer.anchor);
}

bool LocalSteps::is_due(const Unit& unit, int64_t done) const {
  return done > options_.start && (done - options_.start) % options_.every == unit.turn;
}

void LocalSteps::end_step(int64_t done) {
  std::vector<Unit*> due;
  for (Unit& unit : units_) {
    if (is_due(unit, done)) due.push_back(&unit);
  }
  synchronise(due);
}

void LocalSteps::finish(int64_t done) {
  if (done <= options_.start) return;
  std::vector<Unit*> ahead;
  for (Unit& unit : units_) {
    if (!is_due(unit, done)) ahead.push_back(&unit);
  }
  synchronise(ahead);
}

// Adds the outer gradients of units over the replicas, and steps the units. Sends one unit while
// the next one is prepared.
void LocalSteps::synchronise(const std::vector<Unit*>& units) {
  const Unit* sent = nullptr;
  Tensor sent_delta;
  Work work;
  const auto take = [&] {
    if (sent == nullptr) return;
    parallel_.shared().wait(std::exchange(work, Work()));
    step(*sent, sent_delta);
  };
  for (size_t i = 0; i < units.size(); ++i) {
    const Tensor delta = vector_slice(staged_[i % 2], 0, units[i]->outer.anchor.numel());
    Work next = send(*units[i], delta);
    take();
    sent = units[i], sent_delta = delta, work = std::move(next);
  }
  take();
}

Work LocalSteps::send(const Unit& unit, const Tensor& delta) {
  if (delta.numel() == 0) return {};
  download(unit, delta);
  kernels::axpby(delta.exec(),
                 {.a = unit.outer.anchor, .b = delta, .y = delta, .alpha = 1, .beta = -1});
  ProcessGroup& replicas = parallel_.shared().groups.replicate->host();
  return replicas.all_reduce_sum(
      delta, {.tag = unit.shard.name, .async = true, .traffic = Traffic::kGradients});
}

// Performs the outer step of a unit. delta: sum of the outer gradients over the replicas.
void LocalSteps::step(const Unit& unit, const Tensor& delta) {
  if (delta.numel() == 0) return;
  const auto& [anchor, momentum] = unit.outer;
  const float share = 1 / static_cast<float>(parallel_.shared().groups.replicate->size());
  const Exec& exec = anchor.exec();
  kernels::axpby(
      exec, {.a = momentum, .b = delta, .y = momentum, .alpha = options_.momentum, .beta = share});
  kernels::axpby(exec, {.a = anchor, .b = delta, .y = anchor, .beta = -options_.lr * share});
  if (options_.momentum > 0) {
    kernels::axpby(
        exec, {.a = anchor, .b = momentum, .y = anchor, .beta = -options_.lr * options_.momentum});
  }
  upload(unit);
  unit.buffer->values().masters_changed();
}

void LocalSteps::with_anchors(const std::function<void()>& use) {
  if (stale_) return use();
  swap();
  use();
  swap();
}

void LocalSteps::swap() {
  for (const Unit& unit : units_) {
    const Tensor& anchor = unit.outer.anchor;
    const Tensor own = vector_slice(staged_[0], 0, anchor.numel());
    download(unit, own);
    upload(unit);
    if (own.numel() > 0) kernels::axpby(own.exec(), {.a = own, .y = anchor});
    unit.buffer->values().masters_changed();
  }
}

// Downloads the masters, after all steps that are queued on the device.
void LocalSteps::download(const Unit& unit, const Tensor& to) {
  if (to.numel() == 0) return;
  tier_.download(unit.shard.master, to, {tier_.computed()}).synchronize();
}

// Copies the anchor to the masters, after pending work that uses the masters.
void LocalSteps::upload(const Unit& unit) {
  if (unit.shard.changing != nullptr) unit.shard.changing();
  if (unit.outer.anchor.numel() == 0) return;
  tier_.upload(unit.outer.anchor, unit.shard.master, {tier_.computed()}).synchronize();
}

const LocalSteps::Outer* LocalSteps::find(const FlatBuffer& buffer) const {
  for (const Unit& unit : units_) {
    if (unit.buffer == &buffer) return &unit.outer;
  }
  return nullptr;
}

}  // namespace shale::comm
