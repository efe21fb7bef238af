#include "shale/comm/parallel/pipeline/runner.h"

#include "shale/base/error.h"
#include "shale/runtime/autograd/boundary.h"

namespace shale::comm {

using enum ActionKind;

Pipeline::Pipeline(Context& context, ProcessGroup& group, StagePlan plan,
                   const PipelineOptions& options)
    : context_(context), group_(group), plan_(std::move(plan)), options_(options) {
  if (plan_.placement().ranks != group.size()) {
    throw InternalError(cat("pipeline: a plan of ", plan_.placement().ranks, " ranks for a group of ",
                            group.size()));
  }
  open_links();
}

Pipeline::~Pipeline() = default;

// One for each two stages that follow each other on two ranks, and direction.
void Pipeline::open_links() {
  const StagePlacement& place = plan_.placement();
  std::vector<LinkSpec> specs;
  std::vector<Key> keys;
  for (int stage = 0; stage + 1 < place.stages(); ++stage) {
    for (const bool forward : {true, false}) {
      const int from = forward ? stage : stage + 1, to = forward ? stage + 1 : stage;
      if (place.rank_of(from) == place.rank_of(to)) continue;
      keys.push_back({forward, to});
      specs.push_back({.sender = place.rank_of(from),
                       .receiver = place.rank_of(to),
                       .direction = forward ? Direction::kForward : Direction::kBackward,
                       .chunk = place.chunk_of(to),
                       .capacity_bytes = options_.boundary.numel() * dtype_size(options_.dtype),
                       .slots = options_.slots});
    }
  }
  if (specs.empty()) return;
  auto links = group_.make_links(specs);
  for (size_t i = 0; i < links.size(); ++i) {
    if (specs[i].sender == group_.rank()) sends_[keys[i]] = std::move(links[i]);
    if (specs[i].receiver == group_.rank()) receives_[keys[i]] = std::move(links[i]);
  }
}

std::vector<Tensor> Pipeline::run(int64_t step, PipelineWork& work) {
  step_ = step;
  flights_.clear();
  here_.clear();
  losses_.assign(has_loss() ? static_cast<size_t>(plan_.schedule.micros) : 0, {});
  const auto& list = plan_.schedule.lists[static_cast<size_t>(group_.rank())];
  for (size_t i = 0; i < list.size(); ++i) {
    post(list[i]);
    if (i + 1 < list.size()) post(list[i + 1]);
    act(list[i], work);
  }
  finish_sends();
  return std::move(losses_);
}

Tensor Pipeline::forward(int64_t step, int micro, PipelineWork& work) {
  step_ = step;
  losses_.assign(has_loss() ? static_cast<size_t>(micro) + 1 : 0, {});
  for (int chunk = 0; chunk < plan_.placement().chunks; ++chunk) {
    const Action action{kForward, chunk, micro};
    post(action);
    act(action, work);
  }
  finish_sends();
  flights_.clear();
  return has_loss() ? std::move(losses_.back()) : Tensor();
}

void Pipeline::act(const Action& action, PipelineWork& work) {
  switch (action.kind) {
    case kForward: return run_forward(action, work);
    case kBackward:
    case kBackwardInput: return run_backward(action, work);
    case kBackwardWeights: return run_weights(action, work);
  }
}

void Pipeline::run_forward(const Action& action, PipelineWork& work) {
  Tensor x = take(action);
  Flight& now = flight(action);
  work.begins(action);
  if (x.defined()) {
    now.dx = std::make_shared<Tensor>();
    begin_graph(x, [dx = now.dx](const Tensor& gradient) { *dx = gradient; });
  }
  Tensor y = work.forward(plan_.pieces_of(group_.rank(), action.chunk), action.micro, x);
  x = Tensor();
  work.ends(action);
  if (!given_by(action).is_there) {
    losses_[static_cast<size_t>(action.micro)] = y.detach();
    now.root = std::move(y);
    return;
  }
  now.root = history_of(y);
  give(action, y.detach());
}

void Pipeline::run_backward(const Action& action, PipelineWork& work) {
  const Tensor dy = take(action);
  Flight& now = flight(action);
  const bool splits = action.kind == kBackwardInput;
  work.begins(action);
  if (splits) {
    backward_inputs(now.root, dy, now.rest);
  } else {
    work.before_backward(action.chunk, action.micro + 1 == plan_.schedule.micros);
    backward(now.root, dy);
  }
  now.root = Tensor();
  work.ends(action);
  if (now.dx != nullptr) {
    if (!now.dx->defined()) {
      throw InternalError(cat("pipeline: ", describe(action), " has made no gradient of its input"));
    }
    give(action, std::move(*now.dx));
  }
  if (!splits) flights_.erase({action.chunk, action.micro});
}

void Pipeline::run_weights(const Action& action, PipelineWork& work) {
  work.begins(action);
  work.before_backward(action.chunk, action.micro + 1 == plan_.schedule.micros);
  backward_weights(context_, flight(action).rest);
  flights_.erase({action.chunk, action.micro});
  work.ends(action);
}

// ---- Between stages ----

Pipeline::Passage Pipeline::taken_by(const Action& action) const {
  if (action.kind == kBackwardWeights) return {};
  const bool forward = action.kind == kForward;
  const int stage = plan_.placement().stage_of(group_.rank(), action.chunk);
  const int last = plan_.placement().stages() - 1;
  return {.is_there = stage != (forward ? 0 : last), .forward = forward, .stage = stage};
}

Pipeline::Passage Pipeline::given_by(const Action& action) const {
  if (action.kind == kBackwardWeights) return {};
  const bool forward = action.kind == kForward;
  const int stage = plan_.placement().stage_of(group_.rank(), action.chunk);
  const int last = plan_.placement().stages() - 1;
  return {.is_there = stage != (forward ? last : 0),
          .forward = forward,
          .stage = forward ? stage + 1 : stage - 1};
}

MessageId Pipeline::id_of(const Passage& passage, int micro) const {
  return {.step = step_,
          .micro_batch = micro,
          .chunk = plan_.placement().chunk_of(passage.stage),
          .direction = passage.forward ? Direction::kForward : Direction::kBackward};
}

// Begins to receive what an action takes, unless that has begun, or comes from this rank.
void Pipeline::post(const Action& action) {
  const Passage passage = taken_by(action);
  const Key key{passage.forward, passage.stage};
  const auto link = receives_.find(key);
  if (!passage.is_there || link == receives_.end()) return;
  const auto [posted, is_new] = posted_.try_emplace({key, action.micro});
  if (!is_new) return;
  Tensor& x = posted->second.x;
  x = empty(context_, options_.boundary, options_.dtype,
            passage.forward ? MemoryTag::kActivation : MemoryTag::kGradient, "pipeline");
  posted->second.work =
      link->second->receive(x, id_of(passage, action.micro), context_.exec().stream);
}

Tensor Pipeline::take(const Action& action) {
  const Passage passage = taken_by(action);
  if (!passage.is_there) return {};
  const std::pair<Key, int> what{{passage.forward, passage.stage}, action.micro};
  if (auto node = here_.extract(what)) return std::move(node.mapped());
  auto node = posted_.extract(what);
  node.mapped().work.wait();
  return std::move(node.mapped().x);
}

void Pipeline::give(const Action& action, Tensor x) {
  const Passage passage = given_by(action);
  const Key key{passage.forward, passage.stage};
  const auto link = sends_.find(key);
  if (link == sends_.end()) {
    here_[{key, action.micro}] = std::move(x);
    return;
  }
  if (!(x.shape() == options_.boundary) || x.dtype() != options_.dtype) {
    throw ShapeError(cat("pipeline: ", describe(action), " gives ", x, " to the next stage, want ",
                         dtype_name(options_.dtype), options_.boundary));
  }
  // One message that waits, and the next send waits for it: what the schedule was proven with. A
  // host's links move nothing while nobody waits; a device's need nobody.
  Posted& before = sent_[key];
  before.work.wait();
  before = {.x = x,
            .work = link->second->send(x, id_of(passage, action.micro), context_.exec().stream)};
  if (group_.backend() == "nccl") return;
  before.work.wait();
  before.x = Tensor();
}

void Pipeline::finish_sends() {
  for (auto& [key, sent] : sent_) sent.work.wait();
  sent_.clear();
}

}  // namespace shale::comm
