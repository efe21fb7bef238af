#include "shale/kernels/gemm_plan.h"

#include <tuple>

#include "shale/base/reserved_sms.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using kernels::Epilogue;
using kernels::gemm_plan;
using kernels::GemmEngine;
using kernels::GemmProblem;
using kernels::GemmTile;

GemmProblem problem(int64_t m, int64_t n, int64_t k, DType in = DType::kBF16) {
  GemmProblem p;
  p.m = m, p.n = n, p.k = k;
  p.a.dtype = p.b.dtype = p.c.dtype = in;
  return p;
}

// Plan of an fp8 GEMM, as kernels/cuda/gemm/fp8_gemm.cu makes it: its time is that of a 16-bit GEMM
// with half of k.
kernels::GemmPlan fp8_plan(GemmProblem p, int sms) {
  kernels::GemmPlan plan = {.tile = GemmTile::kHopper128x128, .sms = sms};
  plan.cluster = best_cluster(p, plan.tile, sms);
  p.k = (p.k + kernels::kFp8Block - 1) / kernels::kFp8Block * kernels::kFp8Block / 2;
  plan.shares = best_shares(p, plan.tile, plan.cluster, sms);
  return plan;
}

TEST_CASE("large products take large tiles and small ones tiles enough to go round", "[gemm]") {
  const auto large = gemm_plan(problem(8192, 8192, 8192), {});
  CHECK(rows_of(large.tile) * cols_of(large.tile) >= 128 * 128);
  CHECK(large.splits == 1);
  CHECK(gemm_plan(problem(64, 512, 512), {}).tile == GemmTile::k64x64);
}

TEST_CASE("where a block has little shared memory, no tile is planned that takes more", "[gemm]") {
  const kernels::GemmMeans graphics = kernels::gemm_means({.type = DeviceType::kCuda, .arch = 89});
  CHECK(gemm_plan(problem(8192, 8192, 8192), {}).tile == GemmTile::k128x256);
  CHECK(gemm_plan(problem(8192, 8192, 8192), graphics).tile == GemmTile::k128x128);
  const kernels::GemmMeans turing = kernels::gemm_means({.type = DeviceType::kCuda, .arch = 75});
  CHECK(gemm_plan(problem(8192, 8192, 8192), turing).tile == GemmTile::k128x64);
  CHECK(kernels::grouped_gemm_tile(problem(8192, 8192, 8192), 2, turing) == GemmTile::k64x64);
  CHECK(can_run(GemmTile::k128x256, kernels::gemm_means({.type = DeviceType::kCuda, .arch = 100})));
  CHECK_FALSE(kernels::gemm_means({.type = DeviceType::kCuda, .arch = 100}).hopper);
}

TEST_CASE("few tiles over a long k are split", "[gemm]") {
  CHECK(gemm_plan(problem(768, 768, 16384), {}).splits > 1);
  CHECK(gemm_plan(problem(16384, 768, 768), {}).splits == 1);
  // The partial results of split-K use at most the memory allowed for them.
  const GemmProblem wide = problem(4096, 4096, 65536);
  CHECK(gemm_plan(wide, {}).splits * wide.m * wide.n * 4 <= int64_t{64} << 20);
}

TEST_CASE("blocks form clusters unless a row of tiles without a pair costs a round", "[gemm]") {
  using kernels::best_cluster;
  CHECK(gemm_plan(problem(8192, 8192, 8192), {.hopper = true}).cluster == 2);
  CHECK(gemm_plan(problem(8192, 8192, 8192), {}).cluster == 1);
  CHECK(best_cluster(problem(256, 256, 512), GemmTile::kHopper128x256) == 2);
  CHECK(best_cluster(problem(128, 256, 512), GemmTile::kHopper128x256) == 1);
  CHECK(best_cluster(problem(8192, 8192, 512), GemmTile::kHopper128x64) == 1);
  // On 132 SMs, 3 rows of 44 tiles take one round. Padded to 4 rows for clusters, they would take
  // two.
  CHECK(best_cluster(problem(384, 44 * 256, 512), GemmTile::kHopper128x256) == 1);
  CHECK(best_cluster(problem(384, 33 * 256, 512), GemmTile::kHopper128x256) == 2);
}

// The number of SMs is 132, as on an H100.
TEST_CASE("tiles beyond whole rounds are shared where that ends sooner", "[gemm]") {
  using kernels::best_shares;
  const auto shares = [](int64_t m, int64_t n, int64_t k, int cluster = 1) {
    return best_shares(problem(m, n, k), GemmTile::kHopper128x256, cluster);
  };
  CHECK(shares(768, 3072, 16384) == 132);  // 72 tiles on 132 SMs: all tiles are shared
  CHECK(shares(768, 3072, 512) == 0);      // sharing costs more than it saves
  CHECK(shares(768, 768, 16384) == 18 * 7);
  CHECK(shares(12 * 128, 11 * 256, 16384) == 0);      // 132 tiles: one whole round
  CHECK(shares(16 * 128, 12 * 256, 4096) == 60 * 2);  // 60 tiles are left after a round
  CHECK(shares(768, 3072, 16384, 2) == 66);
  CHECK(best_shares(problem(768, 3072, 16384), GemmTile::kHopperPingPong128x128, 1) == 0);
  CHECK(best_shares(problem(768, 3072, 16384), GemmTile::k128x256, 1) == 0);
  CHECK(best_shares(problem(768, 3072, int64_t{1} << 30), GemmTile::kHopper128x256, 1) == 0);
  const auto plan = gemm_plan(problem(768, 3072, 16384), {.hopper = true});
  CHECK(plan.tile == GemmTile::kHopper128x256);
  CHECK(plan.splits == 1);
  CHECK(plan.shares == 66);
  CHECK(plan.cluster == 2);
}

// Numbers of SMs: H100 SXM, H100 SXM without the SMs of a collective, H100 PCIe, A100, H20.
TEST_CASE("no plan needs a second wave of blocks for tiles that they share", "[gemm]") {
  int shared = 0;
  const auto check = [&](const GemmProblem& p, const kernels::GemmPlan& plan) {
    CAPTURE(plan.sms, p.m, p.n, p.k, static_cast<int>(p.epilogue), plan.shares, plan.cluster);
    CHECK(plan.shares * plan.cluster <= plan.sms);
    const auto tiles = tiles_of(p, plan.tile, plan.cluster, plan.sms);
    // Tiles that are not shared fill whole waves.
    if (plan.shares > 0) CHECK((tiles.all - tiles.shared) % (plan.sms / plan.cluster) == 0);
    shared += plan.shares > 0;
  };
  for (const int sms : {132, 116, 114, 108, 78}) {
    for (const int64_t width : {768, 1024, 1280, 1600, 2048, 4096, 5120}) {
      for (const int64_t outputs : {width, 3 * width, 4 * width, int64_t{14336}, int64_t{50304}}) {
        for (const auto& [m, n, k] : {std::tuple{int64_t{16384}, outputs, width},
                                      {int64_t{16384}, width, outputs},
                                      {outputs, width, int64_t{16384}}}) {
          GemmProblem p = problem(m, n, k);
          check(p, fp8_plan(p, sms));
          for (const Epilogue epilogue :
               {Epilogue::kNone, Epilogue::kSwiGlu, Epilogue::kDGeluTanh}) {
            p.epilogue = epilogue;
            const auto plan = gemm_plan(p, {.hopper = true, .sms = sms});
            CHECK(plan.sms == sms);
            check(p, plan);
          }
        }
      }
    }
  }
  CHECK(shared > 100);
}

TEST_CASE("a GEMM may use the SMs of the smallest GPU, less what collectives may reserve",
          "[gemm]") {
  ReservedSms held;
  Exec exec{.device = {.type = DeviceType::kCuda, .arch = 90}};
  CHECK(kernels::gemm_means(exec).sms == 132);
  exec.held = &held;
  CHECK(kernels::gemm_means(exec).sms == 132);
  held.limit(132), held.limit(114);
  CHECK(kernels::gemm_means(exec).sms == 114);
  {
    int lane = 0, link = 0;
    const ReservedSms::Hold group(held, 16, &lane, true), part(held, 16, &lane, true);
    // Groups on the same stream run one after the other, so 16 SMs count once.
    CHECK(kernels::gemm_means(exec).sms == 98);
    const ReservedSms::Hold other(held, 2, &link, true);
    CHECK(kernels::gemm_means(exec).sms == 96);
    const ReservedSms::Hold now(held, 16, &lane);
    // Collectives in flight do not count, because they change from call to call.
    CHECK(kernels::gemm_means(exec).sms == 96);
  }
  CHECK(kernels::gemm_means(exec).sms == 114);
}

TEST_CASE("a plan names a tile that has a kernel", "[gemm]") {
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t size : {1, 60, 130, 1000, 5000}) {
      for (int layout = 0; layout < 4; ++layout) {
        GemmProblem p = problem(size, 2 * size, size, in);
        p.a.transposed = layout & 1, p.b.transposed = layout & 2;
        CAPTURE(dtype_name(in), size, layout);
        CHECK(has_kernel(p, gemm_plan(p, {}).tile));
      }
    }
  }
}

TEST_CASE("the library is taken only for what it rounds as the slot does", "[gemm]") {
  GemmProblem p = problem(4096, 4096, 4096);
  CHECK(gemm_plan(p, {.vendor = true}).engine == GemmEngine::kVendor);
  CHECK(gemm_plan(p, {}).engine == GemmEngine::kOwn);
  p.epilogue = Epilogue::kDGeluTanh;
  CHECK(gemm_plan(p, {.vendor = true}).engine == GemmEngine::kOwn);
}

TEST_CASE("the library computes SwiGLU where the hand-written kernels lack the GPU's instructions",
          "[gemm]") {
  GemmProblem p = problem(4096, 4096, 4096);
  const auto engine = [&](int arch) {
    kernels::GemmMeans means = kernels::gemm_means({.type = DeviceType::kCuda, .arch = arch});
    CHECK(gemm_plan(p, means).engine == GemmEngine::kOwn);
    means.vendor = true;
    return gemm_plan(p, means).engine;
  };
  p.epilogue = Epilogue::kSwiGlu;
  for (const int arch : {100, 103, 110}) CHECK(engine(arch) == GemmEngine::kVendor);
  for (const int arch : {80, 89, 90, 120}) CHECK(engine(arch) == GemmEngine::kOwn);
  for (const Epilogue backward : {Epilogue::kDSwiGlu, Epilogue::kDGeluTanh}) {
    p.epilogue = backward;
    CHECK(engine(100) == GemmEngine::kOwn);
  }
}

TEST_CASE("Hopper's tiles are planned on Hopper, for 16-bit operands that have a kernel",
          "[gemm]") {
  const auto planned = [](const GemmProblem& p, bool hopper) {
    return is_hopper(gemm_plan(p, {.hopper = hopper}).tile);
  };
  CHECK(planned(problem(4096, 4096, 4096), true));
  CHECK_FALSE(planned(problem(4096, 4096, 4096), false));
  CHECK_FALSE(planned(problem(4096, 4096, 4096, DType::kF32), true));
  CHECK_FALSE(planned(problem(4096, 4096, 0), true));
  GemmProblem both_transposed = problem(4096, 4096, 4096);
  both_transposed.a.transposed = both_transposed.b.transposed = true;
  CHECK_FALSE(planned(both_transposed, true));
}

TEST_CASE("on Hopper two tiles take turns where the epilogue is long beside k", "[gemm]") {
  const kernels::GemmMeans hopper{.hopper = true};
  GemmProblem gelu = problem(16384, 3072, 768);
  gelu.epilogue = Epilogue::kGeluTanh;
  CHECK(gemm_plan(gelu, hopper).tile == GemmTile::kHopperPingPong128x128);
  gelu.k = 16384;
  CHECK(gemm_plan(gelu, hopper).tile == GemmTile::kHopper128x256);
  CHECK(gemm_plan(problem(8192, 8192, 8192), hopper).tile == GemmTile::kHopper128x256);
  // A block with a single tile cannot alternate between two tiles.
  CHECK(gemm_plan(problem(1024, 1024, 1024), hopper).tile != GemmTile::kHopperPingPong128x128);
}

TEST_CASE("SwiGLU's products are planned as one of both widths, in one part, with own kernels",
          "[gemm]") {
  for (const DType in : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool hopper : {false, true}) {
      for (const int64_t size : {60, 768, 8192}) {
        GemmProblem p = problem(size, size, 16384, in);  // few tiles and a long k
        p.b.transposed = p.b_up.transposed = true;
        p.epilogue = Epilogue::kSwiGlu;
        CAPTURE(dtype_name(in), hopper, size);
        const auto plan = gemm_plan(p, {.vendor = true, .hopper = hopper});
        CHECK(plan.engine == GemmEngine::kOwn);
        CHECK(plan.splits == 1);
        CHECK(has_kernel(p, plan.tile, plan.splits));
        CHECK_FALSE(has_kernel(p, plan.tile, 2));
        CHECK_FALSE(has_kernel(p, GemmTile::kHopper128x64));
        GemmProblem both = p;
        both.epilogue = Epilogue::kNone;
        both.n = 2 * p.n;
        CHECK(class_of(p) == class_of(both));
      }
    }
  }
}

TEST_CASE("classes of products hold a factor of two", "[gemm]") {
  CHECK(class_of(problem(1024, 768, 3072)) == class_of(problem(2047, 1000, 4095)));
  CHECK_FALSE(class_of(problem(1024, 768, 3072)) == class_of(problem(1023, 768, 3072)));
  CHECK_FALSE(class_of(problem(64, 64, 64)) == class_of(problem(64, 64, 64, DType::kF32)));
}

}  // namespace
}  // namespace shale::test
