#include "shale/comm/parallel/pipeline/runner.h"

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/boundary.h"

namespace shale::comm {

using enum ActionKind;

Pipeline::Pipeline(Context& context, ProcessGroup& group, StagePlan plan,
                   const PipelineOptions& options)
    : context_(context), group_(group), plan_(std::move(plan)), options_(options) {
  if (plan_.placement().ranks != group.size()) {
    throw InternalError(cat("pipeline: the plan has ", plan_.placement().ranks,
                            " ranks, but the group has ", group.size()));
  }
  open_links();
}

Pipeline::~Pipeline() = default;

// Opens two links, one per direction, for each pair of consecutive stages on different ranks.
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
                       .capacity_bytes = message_shape().numel() * dtype_size(options_.dtype),
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

void Pipeline::for_ranks(const Action& action, std::vector<Tensor> taken, const RankBody& body) {
  std::vector<Flight>& flights = this->flights(action);
  flights.resize(ranks_here());
  const auto of_rank = [&](int rank) {
    const auto i = static_cast<size_t>(rank);
    body(flights[i], taken.empty() ? Tensor() : std::move(taken[i]), i);
  };
  options_.hosted != nullptr ? options_.hosted->run(of_rank) : of_rank(0);
}

void Pipeline::run_forward(const Action& action, PipelineWork& work) {
  std::vector<Tensor> taken = take(action), made(ranks_here());
  const bool gives = given_by(action).is_there;
  work.begins(action);
  for_ranks(action, std::move(taken), [&](Flight& now, Tensor x, size_t rank) {
    if (x.defined()) {
      now.dx = std::make_shared<Tensor>();
      begin_graph(x, [dx = now.dx](const Tensor& gradient) { *dx = gradient; });
    }
    Tensor y = work.forward(plan_.pieces_of(group_.rank(), action.chunk), action.micro, x);
    made[rank] = y.detach();
    now.root = gives ? history_of(y) : std::move(y);
  });
  work.ends(action);
  if (gives) {
    give(action, made);
  } else {
    losses_[static_cast<size_t>(action.micro)] = made.front();  // all mesh ranks have equal losses
  }
}

void Pipeline::run_backward(const Action& action, PipelineWork& work) {
  std::vector<Tensor> taken = take(action), made(ranks_here());
  const bool splits = action.kind == kBackwardInput;
  work.begins(action);
  if (!splits) work.before_backward(action.chunk, action.micro + 1 == plan_.schedule.micros);
  for_ranks(action, std::move(taken), [&](Flight& now, const Tensor& dy, size_t rank) {
    if (splits) {
      backward_inputs(now.root, dy, now.rest);
    } else {
      backward(now.root, dy);
    }
    now.root = Tensor();
    if (now.dx == nullptr) return;
    if (!now.dx->defined()) {
      throw InternalError(
          cat("pipeline: ", describe(action), " gave no gradient of its input; use x in forward"));
    }
    made[rank] = std::move(*now.dx);
  });
  work.ends(action);
  if (made.front().defined()) give(action, made);
  if (!splits) flights_.erase({action.chunk, action.micro});
}

void Pipeline::run_weights(const Action& action, PipelineWork& work) {
  work.begins(action);
  work.before_backward(action.chunk, action.micro + 1 == plan_.schedule.micros);
  for_ranks(action, {},
            [&](Flight& now, const Tensor&, size_t) { backward_weights(context_, now.rest); });
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

// Starts to receive an action's input. Does nothing if that was started already, or if this rank
// makes the input itself.
void Pipeline::post(const Action& action) {
  const Passage passage = taken_by(action);
  const Key key{passage.forward, passage.stage};
  const auto link = receives_.find(key);
  if (!passage.is_there || link == receives_.end()) return;
  const auto [posted, is_new] = posted_.try_emplace({key, action.micro});
  if (!is_new) return;
  Tensor& x = posted->second.x;
  x = empty(context_, message_shape(), options_.dtype,
            passage.forward ? MemoryTag::kActivation : MemoryTag::kGradient, "pipeline");
  posted->second.work =
      link->second->receive(x, id_of(passage, action.micro), context_.exec().stream);
}

// A message holds the tensors of all mesh ranks in a process, one after another.
Shape Pipeline::message_shape() const {
  Shape shape = options_.boundary;
  if (shape.ndim() > 0) shape[0] *= static_cast<int64_t>(ranks_here());
  return shape;
}

std::vector<Tensor> Pipeline::take(const Action& action) {
  const Passage passage = taken_by(action);
  if (!passage.is_there) return {};
  const std::pair<Key, int> what{{passage.forward, passage.stage}, action.micro};
  if (auto node = here_.extract(what)) return std::move(node.mapped());
  auto node = posted_.extract(what);
  node.mapped().work.wait();
  const Tensor all = std::move(node.mapped().x);
  const auto count = static_cast<int64_t>(ranks_here());
  if (count == 1) return {all};
  std::vector<Tensor> of_ranks;
  for (int64_t i = 0; i < count; ++i) {
    of_ranks.push_back(all.alias(options_.boundary, contiguous_strides(options_.boundary),
                                 i * options_.boundary.numel()));
  }
  return of_ranks;
}

void Pipeline::give(const Action& action, const std::vector<Tensor>& of_ranks) {
  const Passage passage = given_by(action);
  const Key key{passage.forward, passage.stage};
  const auto link = sends_.find(key);
  if (link == sends_.end()) {
    here_[{key, action.micro}] = of_ranks;
    return;
  }
  for (const Tensor& one : of_ranks) {
    if (one.shape() == options_.boundary && one.dtype() == options_.dtype) continue;
    throw ShapeError(cat("pipeline: ", describe(action), " gives ", one,
                         " to the next stage, expected ", dtype_name(options_.dtype),
                         options_.boundary));
  }
  Tensor x = of_ranks.front();
  if (of_ranks.size() > 1) {
    x = empty(context_, message_shape(), options_.dtype);
    for (size_t i = 0; i < of_ranks.size(); ++i) {
      const int64_t count = options_.boundary.numel();
      kernels::copy(x.exec(), {.x = of_ranks[i].alias({count}, {1}),
                               .y = x.alias({count}, {1}, static_cast<int64_t>(i) * count)});
    }
  }
  // Wait for the previous message of the link, because the schedule was checked with one unread
  // message per link. A link in host memory makes progress only while the sender waits, so wait for
  // this message too; a link on a device needs no wait.
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
