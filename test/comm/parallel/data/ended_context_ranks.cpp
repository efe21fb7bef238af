// Tests objects that outlive their context, or the group or World that they were made with. Using
// such an object is an error with a clear message. Destroying it works.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/mpi_communicator.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/parallel_step.h"
#include "shale/runtime/amp/grad_scaler.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::DataParallelOptions;
using comm::ProcessGroup;

constexpr int64_t kWidth = 24;

struct Layer : Module {
  Layer(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)),
        linear(this, "linear", kWidth, kWidth, Init::normal(0.15f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return gelu(linear.forward(in)); });
  }
  nn::Linear linear;
};

struct Net : Module {
  Net() : first(this, "first"), second(this, "second") {}
  Tensor loss(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return sum(second.forward(first.forward(in))); });
  }
  std::vector<nn::Piece> pieces() {
    return {{.name = "first", .unit = &first, .parameters = first.parameters()},
            {.name = "second", .unit = &second, .parameters = second.parameters()}};
  }
  Layer first, second;
};

// Hides the log's warnings about contexts that end too early.
struct SilentLog {
  std::unique_ptr<FILE, int (*)(FILE*)> file{std::tmpfile(), std::fclose};
  SilentLog() { set_process_log({.err = file.get()}); }
  ~SilentLog() { set_process_log({}); }
  SilentLog(const SilentLog&) = delete;
  SilentLog& operator=(const SilentLog&) = delete;
};

enum class Ends { kContext, kGroupThenContext, kContextThenGroup };

// A program that keeps all objects as members. Tests reset the members in any order.
struct Program {
  Program(comm::World& ranks, const ContextOptions& options, int of_stage)
      : stage(of_stage), context(std::make_unique<Context>(options)) {
    group = ranks.group({.timeout_s = 60}, context->backend());
  }
  DataParallelOptions options() const { return {.stage = stage}; }
  Tensor input() const { return from_host<float>(*context, randn<float>(kWidth, 7), {1, kWidth}); }
  // Does one step, keeps its graph, and prepares the next step. In stages 1 and 2 the gathers of
  // the step are still in flight at return.
  void train(const std::vector<OptimShard>& shards) {
    optimizer = std::make_unique<optim::AdamW>(shards, optim::AdamWOptions{});
    optimizer->prepare(*context, 0, 0.01f);
    x = input();
    backward(net.loss(x));
    optimizer->step();
    optimizer->prepare(*context, 1, 0.01f);
    for (const OptimShard& shard : shards) {
      for (const OptimSpan& span : shard.spans) has_part = has_part || span.count > 0;
    }
    graph = net.loss(x);
  }
  void end(Ends what) {
    if (what == Ends::kGroupThenContext) group.reset();
    context.reset();
    if (what == Ends::kContextThenGroup) group.reset();
  }

  const int stage;
  Net net;
  Tensor x, graph;
  bool has_part = false;  // true: this rank's optimizer has parameters to update
  std::unique_ptr<optim::AdamW> optimizer;
  std::unique_ptr<ProcessGroup> group;
  std::unique_ptr<Context> context;
};

template <typename Call>
void check_ended(const char* what, const Call& call) {
  CAPTURE(what);
  CHECK(contains(message_of<InternalError>(call), "has ended"));
}

}  // namespace

TEST_CASE("a sharded model outlives its context: uses are errors, and its end is quiet") {
  const SilentLog silent;
  const auto ends = GENERATE(Ends::kContext, Ends::kGroupThenContext, Ends::kContextThenGroup);
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(int(ends), stage);
    Program p(world(), small_context(1), stage);
    comm::fully_shard(p.net.first, *p.context, *p.group, p.options());
    comm::fully_shard(p.net, *p.context, *p.group, p.options());
    p.train(comm::optim_shards(p.net));
    DataParallel& parallel = comm::data_parallel_of(p.net);
    p.end(ends);
    check_ended("tensor", [&] { scale(p.x, 2); });
    check_ended("forward", [&] { p.net.loss(p.x); });
    check_ended("backward", [&] { backward(p.graph); });
    if (p.has_part) check_ended("step", [&] { p.optimizer->step(); });
    check_ended("clip", [&] { comm::clip_grad_norm(p.net, 1); });
    check_ended("mean", [&] { comm::mean_over_ranks(p.net, p.graph); });
    check_ended("state", [&] { parallel.full_state([](const Parameter&, const View&) {}); });
    check_ended("gradients", [&] { parallel.finish_gradients(); });
  }
}

TEST_CASE("a DataParallel outlives its context, and its model too") {
  const SilentLog silent;
  const auto ends = GENERATE(Ends::kContext, Ends::kGroupThenContext, Ends::kContextThenGroup);
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(int(ends), stage);
    Program p(world(), small_context(1), stage);
    auto parallel =
        std::make_unique<DataParallel>(p.net, std::vector<Module*>{&p.net.first, &p.net.second},
                                       *p.context, *p.group, p.options());
    p.train(parallel->shards());
    p.end(ends);
    check_ended("clip", [&] { parallel->clip_grad_norm(1); });
    parallel.reset();
    check_ended("forward", [&] { p.net.loss(p.x); });
  }
}

TEST_CASE("a model on one device and its optimizer outlive their context") {
  const SilentLog silent;
  for (const ContextOptions& options : small_contexts()) {
    CAPTURE(to_string(options.device));
    Program p(world(), options, 0);
    materialize(p.net, *p.context, DType::kF32, 1);
    p.train(local_shards(p.net, *p.context));
    amp::GradScaler scaler(*p.context, {});
    p.group.reset();
    p.context.reset();
    check_ended("forward", [&] { p.net.loss(p.x); });
    check_ended("step", [&] { p.optimizer->step(); });
  }
}

TEST_CASE("a Parallel and its step outlive their context") {
  const SilentLog silent;
  const auto ends = GENERATE(Ends::kContext, Ends::kContextThenGroup);
  for (const int stage : {0, 1, 3}) {
    CAPTURE(int(ends), stage);
    Program p(world(), small_context(1), stage);
    comm::Parallel parallel(*p.group, *p.context, comm::fit_degrees({.shard = 0}, p.group->size()));
    const auto models = parallel.build<Net>({}, [] { return std::make_unique<Net>(); });
    comm::ParallelStep step(parallel, models,
                            {.data = p.options(), .micro_batches = p.group->size()});
    const auto forward = [&](const comm::ForwardPass& pass) {
      return models[size_t(pass.rank)]->loss(p.x);
    };
    p.x = p.input();
    step.run(forward);
    p.end(ends);
    check_ended("run", [&] { step.run(forward); });
  }
}

TEST_CASE("a model outlives the World, its groups and its context") {
  if (!world().uses_mpi()) return;
  const SilentLog silent;
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    std::unique_ptr<Program> p;
    {
      comm::World guest(comm::MpiCommunicator{MPI_COMM_WORLD});
      p = std::make_unique<Program>(guest, small_context(1), stage);
      comm::fully_shard(p->net.first, *p->context, *p->group, p->options());
      comm::fully_shard(p->net, *p->context, *p->group, p->options());
      p->train(comm::optim_shards(p->net));
      p->end(Ends::kGroupThenContext);
    }
    check_ended("forward", [&] { p->net.loss(p->x); });
  }
}

}  // namespace shale::test
