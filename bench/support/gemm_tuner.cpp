#include "shale/bench/support/gemm_tuner.h"

#include <cmath>
#include <limits>

#include "shale/base/error.h"
#include "shale/bench/support/measure.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;
using kernels::GemmClass;
using kernels::GemmEngine;
using kernels::GemmPlan;
using kernels::GemmTile;

constexpr double kNever = std::numeric_limits<double>::infinity();

// Returns the middle of all sizes with this many bits: 768 for 10 bits, 512 to 1023.
int64_t middle(int bits) {
  return bits < 2 ? 1 : int64_t{3} << (bits - 2);
}

View stored(Operands& operands, DType dtype, int64_t rows, int64_t cols, bool is_transposed) {
  return is_transposed ? transposed(operands.floats(dtype, {cols, rows}))
                       : operands.floats(dtype, {rows, cols});
}

// Makes the arguments of a GEMM. If a is transposed, it is that of a weight gradient, which is
// accumulated in f32.
GemmArgs make_args(Operands& operands, const GemmClass& c, bool gelu) {
  const int64_t m = middle(c.m_bits), n = middle(c.n_bits), k = middle(c.k_bits);
  GemmArgs args;
  args.a = stored(operands, c.in, m, k, c.a_transposed);
  args.b = stored(operands, c.in, k, n, c.b_transposed);
  args.c = operands.zeros(c.a_transposed ? DType::kF32 : c.in, {m, n});
  args.accumulate = c.a_transposed;
  if (gelu) {
    args.bias = operands.floats(c.in, {n});
    args.aux = operands.zeros(c.in, {m, n});
    args.epilogue = Epilogue::kGeluTanh;
  }
  return args;
}

// Returns the seconds of a call with this plan; infinity if the plan is not possible.
double time_of(const KernelBench& bench, const GemmClass& c, bool gelu, const GemmPlan& plan,
               double seconds) {
  const auto timed = make_case<GemmArgs>("tune", kernels::gemm, c.in, [&](Operands& operands) {
    GemmArgs args = make_args(operands, c, gelu);
    args.plan = &plan;
    return args;
  });
  try {
    // bench.device() is a BenchDevice, because tune_gemm() made `bench`.
    auto& device = static_cast<BenchDevice&>(bench.device());
    return measure(device, timed.prepare(bench), seconds).ours.median();
  } catch (const UnavailableError&) {
    return kNever;
  }
}

struct Timed {
  GemmPlan plan;
  double seconds = kNever;
};

Timed best_own(const KernelBench& bench, const GemmClass& c, double seconds) {
  Timed best;
  const int64_t m = middle(c.m_bits), n = middle(c.n_bits), k = middle(c.k_bits);
  kernels::GemmProblem product;
  product.m = m, product.n = n, product.k = k;
  product.a = {.dtype = c.in, .transposed = c.a_transposed};
  product.b = {.dtype = c.in, .transposed = c.b_transposed};
  product.c.dtype = c.a_transposed ? DType::kF32 : c.in;
  for (const GemmTile tile : {GemmTile::k64x64, GemmTile::k128x64, GemmTile::k128x128,
                              GemmTile::k128x256, GemmTile::kHopper128x64, GemmTile::kHopper128x128,
                              GemmTile::kHopper128x256, GemmTile::kHopperPingPong128x128}) {
    if (!can_run(tile, kernels::gemm_means(bench.exec().device))) continue;
    for (const int splits : {1, 2, 3, 4, 5, 6, 8, 12, 16}) {
      // Stop if a part of k would be too short to fill the pipeline, or if there would be more
      // partial results than gemm_plan() accepts.
      if (splits > 1 && (k / splits < 256 || m * n * splits > int64_t{8} << 20)) break;
      if (!has_kernel(product, tile, splits)) continue;
      const int blocks = kernels::best_cluster(product, tile);
      const GemmPlan plan{GemmEngine::kOwn, tile, splits, blocks,
                          kernels::best_shares(product, tile, blocks)};
      const double time = time_of(bench, c, false, plan, seconds);
      if (time < best.seconds) best = {plan, time};
    }
  }
  return best;
}

const char* name_of(DType dtype) {
  return dtype == DType::kF32    ? "DType::kF32"
         : dtype == DType::kBF16 ? "DType::kBF16"
                                 : "DType::kF16";
}

const char* yes_no(bool value) {
  return value ? "true" : "false";
}

std::string microseconds(double seconds) {
  return seconds == kNever ? "none" : cat(std::lround(seconds * 1e6), " us");
}

std::string row_of(const KernelBench& bench, const GemmClass& c, double seconds) {
  const GemmPlan vendor{GemmEngine::kVendor, {}, 1};
  const Timed own = best_own(bench, c, seconds);
  const double plain = time_of(bench, c, false, vendor, seconds);
  double own_gelu = kNever, vendor_gelu = kNever;
  if (!c.a_transposed) {  // weight gradients have no GELU
    own_gelu = time_of(bench, c, true, own.plan, seconds);
    vendor_gelu = time_of(bench, c, true, vendor, seconds);
  }
  return cat("{{", name_of(c.in), ", ", yes_no(c.a_transposed), ", ", yes_no(c.b_transposed), ", ",
             c.m_bits, ", ", c.n_bits, ", ", c.k_bits,
             "}, GemmTile::", kernels::name_of(own.plan.tile), ", ", own.plan.splits, ", ",
             yes_no(plain < own.seconds), ", ", yes_no(vendor_gelu < own_gelu), "},  // ",
             microseconds(own.seconds), ", library ", microseconds(plain), "\n");
}

}  // namespace

std::vector<GemmClass> tuned_classes() {
  constexpr int kVocabularyBits = 16;
  std::vector<GemmClass> classes;
  for (const DType in : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (int tokens = 11; tokens <= 15; ++tokens) {
      for (const int wide : {10, 11, 12, 13, kVocabularyBits}) {
        for (int narrow = 10; narrow <= 13; ++narrow) {
          classes.push_back({in, false, true, tokens, wide, narrow});   // forward GEMM
          classes.push_back({in, false, false, tokens, narrow, wide});  // input gradient GEMM
          classes.push_back({in, true, false, wide, narrow, tokens});   // weight gradient GEMM
        }
      }
    }
  }
  return classes;
}

std::string tune_gemm(BenchDevice& device, const std::vector<GemmClass>& classes, double seconds,
                      const std::function<void(const std::string&)>& progress) {
  if (device.device().type == DeviceType::kCpu) {
    throw ConfigError("--tune chooses among GPU kernels, found --device cpu; use --device cuda");
  }
  const KernelBench bench(device);
  std::string rows;
  for (const GemmClass& c : classes) {
    const std::string row = row_of(bench, c, seconds);
    progress(row);
    rows += row;
  }
  return rows;
}

}  // namespace shale::bench
