#include "shale/kernels/gemm.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shale/base/tf32.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cpu/fp8_decode.h"
#include "shale/kernels/cpu/gemm_blocks.h"
#include "shale/kernels/cpu/gemm_epilogue.h"
#include "shale/kernels/cpu/gemm_few.h"
#include "shale/kernels/cpu/onednn_matmul.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/grouped_gemm.h"

// The GEMM kernels divide c into blocks that depend only on shapes and dtypes. Each block is one
// single-threaded oneDNN matmul over the whole of K, followed by its epilogue while the block is in
// cache; with few rows, dot products replace oneDNN (cpu/gemm_few.h). SwiGLU's two GEMMs run one
// after the other, with the activation in the second's epilogue. f16, and bf16 on a CPU without
// bf16 instructions, are widened to f32 block by block.
//
// Workspace: per thread oneDNN's scratch and, with an epilogue, one block in f32.

namespace shale::kernels::cpu {
namespace {

constexpr int64_t kWidenedK = 1024;  // k per step if operands are widened to f32
// Minimum multiply-adds for which waking threads pays off.
constexpr int64_t kSerialWork = int64_t{2} << 20;

// One step of a block's matmul: columns [k, k + size) of a times the same rows of b.
struct Step {
  int64_t k = 0, size = 0;
  std::shared_ptr<const OnednnMatmul> matmul;
};

// How a GEMM is computed. The plan is the same for any number of threads.
struct Plan {
  GemmBlocks blocks;
  bool dots = false;    // dot products, no oneDNN: a is copied to f32 as a whole
  bool widen = false;   // copy inputs to f32 in steps of k, because oneDNN does not support their
                        // dtype or they are rounded to tf32
  bool direct = false;  // oneDNN writes c; else it writes an f32 block for the epilogue
  int64_t pad = 0;      // padding between rows of the f32 block
  std::array<std::vector<Step>, GemmBlocks::kEdges> steps;  // indexed by Block::edge
  // Bytes of one thread's scratch parts, in this order.
  size_t library_bytes = 0, product_bytes = 0, a_bytes = 0, b_bytes = 0;

  size_t thread_bytes() const { return library_bytes + product_bytes + a_bytes + b_bytes; }
};

struct Scratch {
  char* library = nullptr;
  float* product = nullptr;
  float* a = nullptr;
  float* b = nullptr;
};

size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

std::vector<Step> make_steps(const GemmProblem& p, const Plan& plan, int64_t rows, int64_t cols) {
  OnednnMatmul::Spec spec{.m = rows,
                          .n = cols,
                          .a_transposed = p.a.transposed,
                          .b_transposed = p.b.transposed,
                          .in = plan.widen ? DType::kF32 : p.a.dtype,
                          .out = plan.direct ? p.c.dtype : DType::kF32,
                          .accumulate = plan.direct && p.accumulate};
  const int64_t step = plan.widen ? kWidenedK : p.k;
  std::vector<Step> steps;
  for (int64_t k = 0; k < p.k; k += step) {
    // A dry run makes one step of each kind.
    if (DryRun::is_on() && steps.size() == 2) k = (p.k - 1) / step * step;
    spec.k = std::min(step, p.k - k);
    spec.lda = !plan.widen ? p.a.ld : p.a.transposed ? rows : spec.k;
    spec.ldb = !plan.widen ? p.b.ld : p.b.transposed ? spec.k : cols;
    spec.ldc = plan.direct ? p.c.ld : cols + plan.pad;
    steps.push_back({k, spec.k, OnednnMatmul::get(spec)});
    spec.accumulate = true;
  }
  return steps;
}

GemmKind kind_of(const GemmProblem& p, bool direct) {
  if (!p.b.transposed) return p.b.dtype == DType::kF32 ? GemmKind::kWide : GemmKind::kInterleave;
  if (!direct) return GemmKind::kDenseBlock;
  return p.c.ld == p.n ? GemmKind::kDenseRows : GemmKind::kStrided;
}

// Makes the plan for few rows and a transposed b.
Plan make_plan_of_dots(const GemmProblem& p) {
  Plan plan;
  plan.dots = true;
  plan.blocks = blocks_of_dots(p.m, p.n, p.k);
  const GemmBlocks& g = plan.blocks;
  plan.product_bytes = aligned(size_t(g.rows) * size_t(g.cols) * sizeof(float));
  plan.a_bytes = aligned(size_t(g.rows) * size_t(p.k) * sizeof(float));
  return plan;
}

Plan make_plan(const GemmProblem& p) {
  if (p.m <= kDotRows && p.b.transposed && !p.a.transposed && !p.tf32) return make_plan_of_dots(p);
  Plan plan;
  plan.widen = p.tf32 || p.a.dtype == DType::kF16 ||
               (p.a.dtype == DType::kBF16 && !OnednnMatmul::supports_bf16());
  // oneDNN 2.6 has a matrix-vector kernel, fast for a few rows, which it uses only for a strided c.
  // It has another kernel that packs a transposed b well, which it uses only for a dense c.
  const bool by_vector = p.m <= (p.b.dtype == DType::kF32 ? 8 : 1);
  const bool wants_dense = p.b.transposed && !by_vector && p.m <= kFewRows;
  plan.direct = !plan.widen && p.k > 0 && p.epilogue == Epilogue::kNone && p.bias.data == nullptr &&
                p.residual.data == nullptr && !wants_dense;
  plan.blocks = gemm_blocks(p.m, p.n, p.k, kind_of(p, plan.direct), OnednnMatmul::has_avx512());
  plan.pad = by_vector ? 16 : 0;

  const GemmBlocks& g = plan.blocks;
  for (const int64_t i : {int64_t{0}, g.row_blocks - 1}) {
    for (const int64_t j : {int64_t{0}, g.col_blocks - 1}) {
      const auto block = g.at(i, j);
      auto& steps = plan.steps[size_t(block.edge)];
      if (steps.empty()) steps = make_steps(p, plan, block.rows, block.cols);
      for (const Step& step : steps) {
        plan.library_bytes = std::max(plan.library_bytes, aligned(step.matmul->scratch_bytes()));
      }
    }
  }
  const size_t k = size_t(std::min(p.k, kWidenedK));
  if (!plan.direct) {
    plan.product_bytes = aligned(size_t(g.rows) * size_t(g.cols + plan.pad) * sizeof(float));
  }
  if (plan.widen) plan.a_bytes = aligned(size_t(g.rows) * k * sizeof(float));
  if (plan.widen) plan.b_bytes = aligned(size_t(g.cols) * k * sizeof(float));
  return plan;
}

// Copies the block of `from` at (row, col) to dense f32, in the layout of `from`.
void widen(Matrix from, int64_t row, int64_t col, int64_t rows, int64_t cols, float* to) {
  from.data = from.at(row, col);
  widen_lines(from, from.transposed ? cols : rows, from.transposed ? rows : cols, to);
}

// Rounds values to tf32, as tensor cores round their operands (Exec::tf32).
void round_all(std::span<float> values) {
  std::ranges::transform(values, values.begin(), round_to_tf32);
}

void run_product(const GemmProblem& p, const Plan& plan, const GemmBlocks::Block& block,
                 const Scratch& scratch) {
  if (plan.dots) {
    widen(p.a, block.row, 0, block.rows, p.k, scratch.a);
    Matrix b = p.b;
    b.data = b.at(0, block.col);
    return dot_products(scratch.a, block.rows, p.k, b, block.cols, scratch.product, block.cols);
  }
  const auto& steps = plan.steps[size_t(block.edge)];
  void* product = plan.direct ? p.c.at(block.row, block.col) : scratch.product;
  if (steps.empty()) {  // k is 0
    std::fill_n(scratch.product, block.rows * (block.cols + plan.pad), 0.f);
  }
  for (const Step& step : steps) {
    const void* a = scratch.a;
    const void* b = scratch.b;
    if (plan.widen) {
      widen(p.a, block.row, step.k, block.rows, step.size, scratch.a);
      widen(p.b, step.k, block.col, step.size, block.cols, scratch.b);
      if (p.tf32) round_all({scratch.a, size_t(block.rows * step.size)});
      if (p.tf32) round_all({scratch.b, size_t(block.cols * step.size)});
    } else {
      a = p.a.at(block.row, step.k);
      b = p.b.at(step.k, block.col);
    }
    step.matmul->run(a, b, product, scratch.library);
  }
}

void run_epilogue(const GemmProblem& p, const Plan& plan, const GemmBlocks::Block& block,
                  const Scratch& scratch, float* column_sums) {
  const auto sub = [](Matrix m, int64_t row, int64_t col) {
    if (m.data != nullptr) m.data = m.at(row, col);
    return m;
  };
  gemm_epilogue(p.a.dtype,
                {.rows = block.rows,
                 .cols = block.cols,
                 .product = scratch.product,
                 .product_ld = block.cols + plan.pad,
                 .bias = sub(p.bias, 0, block.col),
                 .aux = sub(p.aux, block.row, block.col),
                 // If oneDNN does not write c, c += a·b is computed with c itself as the residual.
                 .residual = sub(p.accumulate ? p.c : p.residual, block.row, block.col),
                 .c = sub(p.c, block.row, block.col),
                 .aux_up = sub(p.aux_up, block.row, block.col),
                 .c_up = sub(p.c_up, block.row, block.col),
                 .epilogue = p.epilogue,
                 .column_sums = column_sums});
}

// Adds the column sums [row_blocks, n] of the row blocks, in order, to bias_grad.
void finish_bias_grad(const GemmProblem& p, const float* column_sums, int64_t row_blocks) {
  if (DryRun::is_on()) return;
  dispatch_gradient(p.bias_grad.dtype, [&]<typename T>() {
    T* const bias_grad = static_cast<T*>(p.bias_grad.data);
    for (int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < row_blocks; ++i) sum += column_sums[i * p.n + j];
      bias_grad[j] = static_cast<T>(p.accumulate_bias_grad ? to_f32(bias_grad[j]) + sum : sum);
    }
  });
}

// One of several GEMMs that run together.
struct Job {
  const GemmProblem* problem;
  Plan plan;
  int64_t first_block;  // number of its first block among the blocks of all jobs
};

// Plans all GEMMs that change their c.
std::vector<Job> make_jobs(std::span<const GemmProblem> problems) {
  std::vector<Job> jobs;
  int64_t blocks = 0;
  for (const GemmProblem& p : problems) {
    const bool nothing_to_add = p.k == 0 && p.accumulate;
    if (p.m == 0 || p.n == 0 || nothing_to_add) {
      if (p.bias_grad.data != nullptr) finish_bias_grad(p, nullptr, 0);
      continue;
    }
    jobs.push_back({&p, make_plan(p), blocks});
    blocks += jobs.back().plan.blocks.count();
  }
  return jobs;
}

Scratch scratch_of(const Plan& plan, char* memory) {
  const auto take = [&memory](size_t size) { return std::exchange(memory, memory + size); };
  Scratch scratch;
  scratch.library = take(plan.library_bytes);
  scratch.product = reinterpret_cast<float*>(take(plan.product_bytes));
  scratch.a = reinterpret_cast<float*>(take(plan.a_bytes));
  scratch.b = reinterpret_cast<float*>(take(plan.b_bytes));
  return scratch;
}

// Part of the workspace that the caller needs. run_problems() reserves the whole workspace at once.
struct Before {
  size_t bytes = 0;
  std::function<void(char*)> fill{};  // called with the caller's part before the GEMMs
};

// Runs GEMMs and their epilogues. For kSwiGlu it runs the GEMMs with b_up; aux must have the
// results of those with b. Threads take the blocks of all GEMMs, one GEMM after the other. A GEMM
// with a bias_grad must be the only one.
void run_problems(const Exec& exec, std::span<const GemmProblem> problems,
                  const Before& before = {}) {
  const std::vector<Job> jobs = make_jobs(problems);
  if (jobs.empty()) return;
  const int64_t blocks = jobs.back().first_block + jobs.back().plan.blocks.count();
  int64_t work = 0;
  size_t thread_bytes = 0;
  for (const Job& job : jobs) {
    const GemmProblem& p = *job.problem;
    // With few rows, reading b takes most of the time.
    work += std::max<int64_t>(p.m, 8) * p.n * p.k;
    thread_bytes = std::max(thread_bytes, job.plan.thread_bytes());
  }
  Exec team = exec;
  team.threads = work < kSerialWork
                     ? 1
                     : static_cast<int>(std::min<int64_t>(std::max(exec.threads, 1), blocks));

  const GemmProblem& p = *jobs.front().problem;
  const int64_t row_blocks = jobs.front().plan.blocks.row_blocks;
  const int64_t sums = p.bias_grad.data == nullptr ? 0 : row_blocks * p.n;
  const size_t sums_bytes = aligned(size_t(sums) * sizeof(float));
  const size_t bytes = before.bytes + sums_bytes + size_t(team.threads) * thread_bytes;
  char* memory = bytes == 0 ? nullptr : static_cast<char*>(exec.workspace->reserve(bytes));
  if (before.bytes > 0) before.fill(std::exchange(memory, memory + before.bytes));
  float* const column_sums = reinterpret_cast<float*>(memory);

  const auto run_block = [&](int64_t index, int64_t) {
    const Job& job = *std::prev(std::upper_bound(
        jobs.begin(), jobs.end(), index,
        [](int64_t block, const Job& other) { return block < other.first_block; }));
    const int thread = team.threads == 1 ? 0 : omp_get_thread_num();
    const Scratch scratch =
        scratch_of(job.plan, memory + sums_bytes + size_t(thread) * thread_bytes);
    const auto block = job.plan.blocks.block(index - job.first_block);
    run_product(*job.problem, job.plan, block, scratch);
    if (job.plan.direct) return;
    run_epilogue(*job.problem, job.plan, block, scratch,
                 sums == 0 ? nullptr : column_sums + block.row_block * p.n + block.col);
  };
  parallel_for(team, blocks, 1, run_block, Schedule::kDynamic);
  if (p.bias_grad.data != nullptr) finish_bias_grad(p, column_sums, row_blocks);
}

// Runs GEMMs. For SwiGLU, runs those with b first, and then those with b_up and the epilogue.
void run_both(const Exec& exec, std::vector<GemmProblem> problems) {
  if (!problems.empty() && problems.front().epilogue == Epilogue::kSwiGlu) {
    std::vector<GemmProblem> gates = problems;
    for (GemmProblem& gate : gates) {
      gate.c = gate.aux;
      gate.epilogue = Epilogue::kNone;
    }
    run_problems(exec, gates);
    for (GemmProblem& p : problems) p.b = p.b_up;
  }
  run_problems(exec, problems);
}

}  // namespace

template <>
void run(const Exec& exec, const GemmArgs& args) {
  run_both(exec, {gemm_problem(exec, args)});
}

// Converts the operands to bf16, which is exact, and runs a bf16 GEMM.
template <>
void run(const Exec& exec, const Fp8GemmArgs& args) {
  GemmProblem problem = gemm_problem(bf16_product(args, nullptr, nullptr));
  const size_t a_bytes = aligned(size_t(problem.m * problem.k) * sizeof(bf16));
  const size_t b_bytes = aligned(size_t(problem.n * problem.k) * sizeof(bf16));
  const auto decode = [&](char* memory) {
    problem.a.data = memory, problem.b.data = memory + a_bytes;
    decode_fp8(exec, args.a, static_cast<bf16*>(problem.a.data));
    decode_fp8(exec, args.b, static_cast<bf16*>(problem.b.data));
  };
  run_problems(exec, {&problem, 1}, {.bytes = a_bytes + b_bytes, .fill = decode});
}

template <>
void run(const Exec& exec, const GroupedGemmArgs& args) {
  const int32_t* offsets = args.offsets.as<int32_t>();
  const int64_t rows = args.by == GroupedBy::kRows ? args.a.size(0) : args.b.size(0);
  std::vector<GemmProblem> problems;
  for (int64_t group = 0; group < args.groups(); ++group) {
    const int64_t begin = offsets[group], end = offsets[group + 1];
    if (begin < 0 || end < begin || end > rows || end % args.align != 0) {
      throw DataError(cat("grouped_gemm: group ", group, " has rows ", begin, " to ", end,
                          ", expected a range of [0, ", rows, "] that ends at a multiple of ",
                          args.align));
    }
    if (begin == end && args.by == GroupedBy::kRows) continue;
    problems.push_back(gemm_problem(exec, group_of(args, group, begin, end)));
  }
  run_both(exec, std::move(problems));
}

}  // namespace shale::kernels::cpu
