// Compares the memory and traffic of tensor parallelism with the formulas of
// docs/explanation/parallelism.md.
#include "shale/comm/parallel/parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::Traffic;

// Sizes that the allocator does not round up.
constexpr int64_t B = 2, T = 256, C = 128, H = 4, V = 512;  // V includes padding
constexpr int64_t kTokens = B * T;

models::LanguageModelConfig costs_model(int64_t layers) {
  return {.layers = layers, .width = C, .heads = H, .vocab = 500, .padded_vocab = V, .context = T};
}

// This rank's model, whose layers are sharded over the group.
struct Run {
  Run(int64_t layers, comm::ProcessGroup& group)
      : context(small_context(1)),
        axes(group, context, {.tensor = group.size()}),
        model(
            std::move(axes.build<models::LanguageModel>(
                              {}, [&] { return models::make_language_model(costs_model(layers)); })
                          .front())),
        parallel(*model, model->blocks(), context, axes.groups(), {}) {}

  Tensor forward() {
    const auto ids = rand_int<int32_t>(kTokens, 7, 0, 499);
    const Tensor batch = from_host<int32_t>(context, ids, {B, T});
    return model->loss(batch, batch);
  }
  void step() {
    backward(forward());
    parallel.finish_gradients();
  }
  int64_t bytes(MemoryTag tag) const {
    return context.allocator().stats().current[static_cast<size_t>(tag)];
  }

  mutable Context context;
  comm::Parallel axes;
  std::unique_ptr<models::LanguageModel> model;
  comm::DataParallel parallel;
};

// Returns the bytes that a transformer block keeps for backward.
int64_t kept_by_block(comm::ProcessGroup& group) {
  const auto kept = [&](int64_t layers) {
    Run run(layers, group);
    const Tensor loss = run.forward();
    return run.bytes(MemoryTag::kActivation);
  };
  return kept(3) - kept(2);
}

double sent(const comm::ProcessGroup& group, Traffic traffic) {
  return group.traffic().totals(traffic).sent_bytes;
}

}  // namespace

TEST_CASE("a block keeps (16 C e + 4 (H + 4)) / t bytes a token", "[tensor][many_ranks]") {
  const auto group = world().group();
  const int64_t ranks = group->size();
  if (ranks != 1 && ranks != 2 && ranks != 4) return;
  const int64_t want = kTokens * (16 * C * 4 + 4 * (H + 4)) / ranks;
  CHECK(kept_by_block(*group) == want);
}

TEST_CASE("a micro-batch sends 10 slices of a block, (t - 1) / t B T C e each",
          "[tensor][many_ranks]") {
  const auto group = world().group();
  const int64_t ranks = group->size();
  if (ranks != 1 && ranks != 2 && ranks != 4) return;
  const double share = double(ranks - 1) / double(ranks);
  for (const int64_t layers : {1, 3}) {
    Run run(layers, *group);
    const double activations = sent(*group, Traffic::kActivations);
    const double gradients = sent(*group, Traffic::kGradients);
    run.step();
    // Besides the blocks, a step sends: the embedding's sum and, in backward, its gather; the
    // head's two gathers and, in backward, its sum; three numbers per row of each leaf for the
    // loss.
    const double want = share * double((10 * layers + 5) * kTokens * C * 4) +
                        share * double(ranks * kTokens * 3 * 4);
    CHECK(sent(*group, Traffic::kActivations) - activations == Approx(want));
    // Gains and biases of two norms per block and of the last norm, each padded to 1,024 elements.
    const double norms = share * 2 * double((4 * layers + 2) * 1024 * 4);
    CHECK(sent(*group, Traffic::kGradients) - gradients == Approx(norms));
  }
}

TEST_CASE("parameters of a block are 1 / t but for norms and the first rank's biases",
          "[tensor][many_ranks]") {
  const auto group = world().group();
  const int64_t ranks = group->size();
  if (ranks != 1 && ranks != 2 && ranks != 4) return;
  const Run run(2, *group);
  int64_t numel = 0;
  for (const Parameter* parameter : run.parallel.unit(*run.model->blocks()[0]).parameters()) {
    numel += parameter->numel();
  }
  const int64_t cut = 12 * C * C + 3 * C + 4 * C, norms = 4 * C;
  const int64_t biases = group->rank() == 0 ? 2 * C : 0;
  CHECK(numel == cut / ranks + norms + biases);
  CHECK(whole_numel(*run.model) ==
        // As many parameters as without tensor parallelism.
        2 * (cut + norms + 2 * C) + V * C + T * C + 2 * C);
}

}  // namespace shale::test
