// Tests placements of a parameter over every mesh axis, and conversion to and from its whole value.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "shale/comm/parallel/data/sharded_parameter.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/piece.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::ShardedParameter;
using Names = std::vector<std::string>;

// Its parameters have all placements that tensor parallelism uses. `up` has two groups of rows.
struct Net : Module {
  Net()
      : norm(this, "norm", 8, 1e-5f),
        up(this, "up", 8, 24, Init::normal(0.2f), nn::Bias::kNo),
        down(this, "down", 24, 8, Init::normal(0.2f)) {
    up.split_outputs({.groups = 2});
    down.split_inputs();
  }
  nn::RmsNorm norm;
  nn::Linear up, down;
};

Names texts(const std::vector<comm::Placement>& placements) {
  Names texts;
  for (const comm::Placement& one : placements) texts.push_back(to_string(one));
  return texts;
}

// A run with mesh ranks for context and tensor parallelism, 4 or 1 in total. If there are fewer
// processes, each hosts several mesh ranks.
struct Run {
  Run(comm::ProcessGroup& group, const comm::Degrees& degrees, int stage)
      : context(small_context(1)),
        parallel(group, context,
                 degrees.here() > 1 ? degrees : comm::fit_degrees(degrees, group.size())),
        nets(parallel.build<Net>({.tokens = 16}, [] { return std::make_unique<Net>(); })),
        data(*nets.front(), {}, context, parallel.groups(), {.stage = stage, .seed = 1}) {}

  Names placements(const char* name) {
    return texts(ShardedParameter(data, *nets.front()->find_parameter(name)).placements());
  }
  Names gradients(const char* name) {
    return texts(ShardedParameter(data, *nets.front()->find_parameter(name)).gradient_placements());
  }

  Context context;
  comm::Parallel parallel;
  std::vector<std::unique_ptr<Net>> nets;
  comm::DataParallel data;
};

const comm::Degrees kBoth{.tensor = 2, .context = 2};
// Each process hosts both tensor ranks. With four processes, two of them share each context rank's
// parameters.
const comm::Degrees kHosted{.tensor = 2, .context = 2, .tensor_here = 2};

}  // namespace

TEST_CASE("placements name every axis of more than one rank, as a parameter lies over it",
          "[placements]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks != 1 && ranks != 2 && ranks != 4) return;
  for (const int stage : {0, 1, 3}) {
    CAPTURE(ranks, stage);
    Run run(*group, kBoth, stage);
    // Context ranks in one process use the same parameter.
    const std::string context =
        stage > 0 && ranks > 1 ? "context 2: range" : "context 2: replicate";
    CHECK(run.placements("norm.weight") == Names{context, "tensor 2: replicate"});
    CHECK(run.placements("up.weight") == Names{context, "tensor 2: shard(0 in 2 groups)"});
    CHECK(run.placements("down.weight") == Names{context, "tensor 2: shard(1)"});
    CHECK(run.placements("down.bias") == Names{context, "tensor 2: some"});
    CHECK(run.gradients("norm.weight") == Names{"context 2: partial", "tensor 2: partial"});
    CHECK(run.gradients("up.weight") ==
          Names{"context 2: partial", "tensor 2: shard(0 in 2 groups)"});
    CHECK(run.gradients("down.bias") == Names{"context 2: partial", "tensor 2: some"});
    Run flat(*group, {}, stage);
    if (ranks == 1) CHECK(flat.placements("up.weight").empty());
    if (ranks > 1) {
      CHECK(flat.placements("up.weight") ==
            Names{cat("shard ", ranks, stage > 0 ? ": range" : ": replicate")});
      CHECK(flat.gradients("up.weight") == Names{cat("shard ", ranks, ": partial")});
    }
  }
  if (ranks == 1) return;
  Run hosted(*group, kHosted, 3);
  Names all = {"context 2: range", "tensor 2: shard(1)"};
  if (ranks == 4) all.insert(all.begin(), "shard 2: range");
  CHECK(hosted.placements("down.weight") == all);
  Run copies(*group, {.replica = ranks}, 3);
  CHECK(copies.placements("up.weight") == Names{cat("replica ", ranks, ": replicate")});
}

TEST_CASE("a whole value comes back from distribute(), whatever mesh ranks a process has",
          "[placements]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks != 1 && ranks != 2 && ranks != 4) return;
  for (const comm::Degrees& degrees :
       {kBoth, kHosted, comm::Degrees{.tensor = 2}, comm::Degrees{}}) {
    // A single process hosts all mesh ranks only with kBoth.
    if (ranks == 1 && degrees.here() > 1) continue;
    for (const int stage : {0, 1, 2, 3}) {
      Run run(*group, degrees, stage);
      for (const Parameter* parameter : run.nets.front()->parameters()) {
        CAPTURE(ranks, degrees.tensor, degrees.context, stage, parameter->full_name());
        const ShardedParameter sharded(run.data, *parameter);
        std::vector<float> whole(size_t(sharded.shape().numel()));
        std::iota(whole.begin(), whole.end(), 1.0f);
        sharded.distribute(make_view(whole.data(), sharded.shape()));
        const Tensor full = sharded.full();
        CHECK(full.shape() == parameter->whole);
        CHECK(same_bits(to_host<float>(full), whole));
        // Checks each mesh rank of this process.
        for (const auto& net : run.nets) {
          const Parameter& own = *net->find_parameter(parameter->full_name());
          const ShardedParameter here(run.data, own);
          CHECK(here.shape() == sharded.shape());
          const Tensor local = here.local();
          if (!local.defined()) {
            CHECK(own.sharding.share == Share::kFirst);
            continue;
          }
          std::vector<float> want;
          for_each_rows(own.whole, own.sharding, here.local_range().begin, here.local_range().count,
                        [&](const PartRows& rows) {
                          for (int64_t row = 0; row < rows.rows; ++row) {
                            const auto from = whole.begin() + rows.in_whole + row * rows.stride;
                            want.insert(want.end(), from, from + rows.run);
                          }
                        });
          CHECK(same_bits(to_host<float>(local), want));
        }
      }
    }
  }
}

TEST_CASE("a parameter of another stage has a whole value and nothing here", "[placements]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  Context context(small_context(1));
  comm::Parallel parallel(*group, context, {.pipeline = 2});
  const auto nets = parallel.build<Net>({}, [] { return std::make_unique<Net>(); });
  Net& net = *nets.front();
  const std::vector<nn::Piece> pieces = {
      {.name = "up", .unit = &net.up, .parameters = net.up.parameters()},
      {.name = "down", .parameters = nn::parameters_of({&net.norm, &net.down})}};
  const comm::StagePlan stages =
      make_stage_plan(pieces, comm::make_schedule(comm::ScheduleKind::k1F1B, 2, 1, 2));
  parallel.stage(pieces, stages, true);
  comm::DataParallel data(stage_units(net, pieces, stages, group->rank()), context,
                          parallel.groups(), {.stage = 1, .seed = 1});
  const ShardedParameter up(data, net.up.weight);
  CHECK(texts(up.placements()) == Names{"pipeline 2: some"});
  CHECK(up.local().defined() == (group->rank() == 0));
  CHECK(up.local_range().count == (group->rank() == 0 ? 8 * 24 : 0));
  std::vector<float> whole(8 * 24, 3.0f);
  up.distribute(make_view(whole.data(), up.shape()));
  CHECK(same_bits(to_host<float>(up.full()), whole));
}

}  // namespace shale::test
