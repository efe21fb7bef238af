// Tests that Muon gathers each matrix on one rank, and gives the same bits as a run on one rank.
#include "shale/runtime/optim/muon.h"

#include <bit>
#include <cmath>

#include "shale/comm/mesh.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

struct Row {
  std::string name;
  RunLayout layout;
};

std::vector<Row> rows() {
  std::vector<Row> rows = {
      {"stage 3, small parameters kept", {{.persist_below = 1000, .stage = 3}}},
      {"stage 0, on the host", {{.stage = 0}, {.optimizer = true}}},
      {"stage 0, a part of it", {{.stage = 0}, {.optimizer = true, .share = 0.4}}},
      {"stage 1, beside forward", {{.stage = 1}, {.optimizer = true, .background = true}}},
      {"stage 2, gradients too", {{.stage = 2}, {.optimizer = true, .gradients = true}}},
      {"stage 2, a part of them",
       {{.stage = 2}, {.optimizer = true, .gradients = true, .share = 0.4}}},
      {"stage 3, parameters too",
       {{.stage = 3}, {.optimizer = true, .gradients = true, .parameters = true}}},
  };
  for (const int stage : {1, 2, 3}) {
    for (const bool overlap : {true, false}) {
      rows.push_back(
          {cat("stage ", stage, ", overlap ", overlap), {{.stage = stage, .overlap = overlap}}});
    }
  }
  return rows;
}

// Trains for six steps and returns the final state.
RunEnd trained(comm::ProcessGroup& group, const RunLayout& layout, DType compute,
               OptimizerKind kind = OptimizerKind::kMuon) {
  RunLayout own = layout;
  own.parallel.compute = compute;
  own.parallel.reproducible = true;
  if (compute == DType::kF16) own.loss_scale = 0x1p24f;
  TinyRun run({.shard = &group}, group, own, kind);
  const RunEnd end = run.end_after(6);
  CHECK((compute == DType::kF16) == (run.skipped_steps() > 0));
  return end;
}

}  // namespace

TEST_CASE("Muon has the same bits in every stage, with overlap and offload or without", "[gate]") {
  const auto all = world().group();
  if (!std::has_single_bit(unsigned(all->size()))) return;
  for (const DType compute : {DType::kF32, DType::kBF16, DType::kF16}) {
    const RunEnd want = trained(*all, {}, compute);
    CHECK(trained(*all, {}, compute, OptimizerKind::kAdamW).losses != want.losses);
    for (const Row& row : rows()) {
      CAPTURE(dtype_name(compute), row.name);
      CHECK(trained(*all, row.layout, compute) == want);
    }
  }
}

TEST_CASE("Muon trains where ranks do not divide what they share", "[gate]") {
  const auto all = world().group();
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    TinyRun run({.shard = all.get()}, *all, {{.stage = stage}}, OptimizerKind::kMuon);
    for (const float loss : run.train(4)) CHECK(std::isfinite(loss));
  }
}

TEST_CASE("Muon has the same bits on any number of ranks, and with replicas of shards", "[gate]") {
  const auto all = world().group();
  if (!std::has_single_bit(unsigned(all->size()))) return;
  const auto groups = groups_of_first_ranks(*all);
  std::vector<float> want;
  if (all->rank() == 0) want = trained(*groups[1], {}, DType::kF32).losses;
  for (const int stage : {1, 3}) {
    CAPTURE(stage);
    const RunEnd got = trained(*all, {{.stage = stage}}, DType::kF32);
    if (all->rank() == 0) CHECK(got.losses == want);
    if (all->size() != 4) continue;
    comm::Mesh mesh(*all, {{"replica", 2}, {"shard", 2}});
    TinyRun run({.shard = &mesh.group("shard"), .replicate = &mesh.group("replica")}, *all,
                {{.stage = stage, .reproducible = true}}, OptimizerKind::kMuon);
    CHECK(run.train(6) == got.losses);
  }
}

TEST_CASE("Muon goes on from a checkpoint of other ranks, stages and tiers with the same bits",
          "[gate]") {
  check_resumes(OptimizerKind::kMuon, {{{.stage = 0}, {.optimizer = true}}, {{.stage = 3}}});
}

TEST_CASE("Muon deals matrices out evenly, and sends each there and back once a step") {
  const auto all = world().group();
  constexpr int64_t kSteps = 3;
  const auto gradient_bytes = [&](OptimizerKind kind, int stage) {
    TinyRun run({.shard = all.get()}, *all, {{.stage = stage}}, kind);
    const double before = all->traffic().totals(comm::Traffic::kGradients).sent_bytes;
    run.train(kSteps);
    return all->traffic().totals(comm::Traffic::kGradients).sent_bytes - before;
  };
  for (const int stage : {0, 1, 3}) {
    CAPTURE(stage);
    TinyRun run({.shard = all.get()}, *all, {{.stage = stage}}, OptimizerKind::kMuon);
    const auto matrices = dynamic_cast<const optim::Muon&>(run.optimizer()).matrices();
    const int owners = stage == 0 ? 1 : all->size();
    std::vector<double> load(static_cast<size_t>(owners));
    // Returns the number of a matrix's elements in this rank's shards.
    const auto held = [&](const optim::Muon::Matrix& matrix) {
      const int64_t end = matrix.first + matrix.rows * matrix.cols;
      int64_t count = 0;
      for (const OptimShard& shard : run.parallel().shards()) {
        for (const OptimSpan& span : shard.spans) {
          if (span.parameter != matrix.parameter) continue;
          const int64_t first = std::max(span.first, matrix.first);
          count += std::max(std::min(span.first + span.count, end) - first, int64_t{0});
        }
      }
      return count;
    };
    double largest = 0, sent = 0;
    for (const auto& matrix : matrices) {
      load.at(size_t(matrix.owner)) += matrix.flops();
      largest = std::max(largest, matrix.flops());
      if (stage == 0) continue;
      const bool owns = matrix.owner == all->rank();
      sent += double(owns ? matrix.rows * matrix.cols - held(matrix) : held(matrix));
    }
    // Matrices are assigned in order of decreasing size to the rank with the least load, so loads
    // differ by at most one matrix.
    CHECK(std::ranges::max(load) - std::ranges::min(load) <= largest);
    // Everything is sent in bf16: this rank's parts go to the owners of their matrices, and the
    // matrices that this rank owns go back.
    const double want = 2 * sent * kSteps;
    const double got =
        gradient_bytes(OptimizerKind::kMuon, stage) - gradient_bytes(OptimizerKind::kAdamW, stage);
    CHECK(got == Approx(want).epsilon(1e-9));
  }
}

}  // namespace shale::test
