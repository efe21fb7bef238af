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

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/fp8_decode.h"
#include "shale/kernels/cpu/gemm_blocks.h"
#include "shale/kernels/cpu/gemm_epilogue.h"
#include "shale/kernels/cpu/gemm_few.h"
#include "shale/kernels/cpu/gemm_packed.h"
#include "shale/kernels/cpu/onednn_matmul.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/grouped_gemm.h"

// The GEMM kernels divide c into blocks that depend only on shapes and dtypes. One thread computes
// a block over the whole of K, followed by its epilogue while the block is in cache. Blocks of f32,
// and of bf16 if the CPU multiplies it fast, are oneDNN matmuls. All others are f32 matmuls that
// convert their operands on the way (cpu/gemm_packed.h). With few rows, dot products replace both
// (cpu/gemm_few.h). SwiGLU's two GEMMs run one after the other, with the activation in the second's
// epilogue.
//
// Workspace: per thread the scratch of the matmul and, with an epilogue, one block in f32.

namespace shale::kernels::cpu {
namespace {

// Minimum multiply-adds for which waking threads pays off.
constexpr int64_t kSerialWork = int64_t{2} << 20;

enum class Method : uint8_t {
  kOnednn,
  kPacked,  // run_packed()
  kDots,    // dot_products(): all of a is copied to f32
};

// How a GEMM is computed. The plan is the same for any number of threads.
struct Plan {
  GemmBlocks blocks;
  Method method = Method::kOnednn;
  bool direct = false;  // the matmul writes c; else it writes an f32 block for the epilogue
  int64_t pad = 0;      // padding between rows of the f32 block
  // kOnednn: indexed by Block::edge; null if k is 0.
  std::array<std::shared_ptr<const OnednnMatmul>, GemmBlocks::kEdges> matmuls;
  // Bytes of one thread's scratch parts, in this order.
  size_t library_bytes = 0, product_bytes = 0, a_bytes = 0;

  size_t thread_bytes() const { return library_bytes + product_bytes + a_bytes; }
};

struct Scratch {
  char* library = nullptr;   // of oneDNN
  float* product = nullptr;  // the f32 block
  float* a = nullptr;        // packed operands, or a copy of a for dot products
};

size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

std::shared_ptr<const OnednnMatmul> make_matmul(const GemmProblem& p, const Plan& plan,
                                                int64_t rows, int64_t cols) {
  if (p.k == 0) return nullptr;
  return OnednnMatmul::get({.m = rows,
                            .n = cols,
                            .k = p.k,
                            .lda = p.a.ld,
                            .ldb = p.b.ld,
                            .ldc = plan.direct ? p.c.ld : cols + plan.pad,
                            .a_transposed = p.a.transposed,
                            .b_transposed = p.b.transposed,
                            .in = p.a.dtype,
                            .out = plan.direct ? p.c.dtype : DType::kF32,
                            .accumulate = plan.direct && p.accumulate});
}

GemmKind kind_of(const GemmProblem& p, Method method, bool direct) {
  if (method == Method::kPacked) return GemmKind::kPacked;
  if (!p.b.transposed) return p.b.dtype == DType::kF32 ? GemmKind::kWide : GemmKind::kInterleave;
  if (!direct) return GemmKind::kDenseBlock;
  return p.c.ld == p.n ? GemmKind::kDenseRows : GemmKind::kStrided;
}

// Makes the plan for few rows and a transposed b.
Plan make_plan_of_dots(const GemmProblem& p) {
  Plan plan;
  plan.method = Method::kDots;
  plan.blocks = blocks_of_dots(p.m, p.n, p.k);
  const GemmBlocks& g = plan.blocks;
  plan.product_bytes = aligned(size_t(g.rows) * size_t(g.cols) * sizeof(float));
  plan.a_bytes = aligned(size_t(g.rows) * size_t(p.k) * sizeof(float));
  return plan;
}

Plan make_plan(const GemmProblem& p) {
  if (p.m <= kDotRows && p.b.transposed && !p.a.transposed && !p.tf32) return make_plan_of_dots(p);
  Plan plan;
  const bool is_packed = p.tf32 || p.a.dtype == DType::kF16 ||
                         (p.a.dtype == DType::kBF16 && !OnednnMatmul::has_fast_bf16());
  if (is_packed) plan.method = Method::kPacked;
  // oneDNN 2.6 has a matrix-vector kernel, fast for a few rows, which it uses only for a strided c.
  // It has another kernel that packs a transposed b well, which it uses only for a dense c.
  const bool by_vector = !is_packed && p.m <= (p.b.dtype == DType::kF32 ? 8 : 1);
  const bool wants_dense = p.b.transposed && !by_vector && p.m <= kFewRows;
  const bool can_write_c = is_packed ? p.c.dtype == DType::kF32 && !p.accumulate : !wants_dense;
  plan.direct = can_write_c && p.k > 0 && p.epilogue == Epilogue::kNone && p.bias.data == nullptr &&
                p.residual.data == nullptr;
  plan.blocks =
      gemm_blocks(p.m, p.n, p.k, kind_of(p, plan.method, plan.direct), OnednnMatmul::has_avx512());
  plan.pad = by_vector ? 16 : 0;

  const GemmBlocks& g = plan.blocks;
  if (is_packed) {
    plan.a_bytes = aligned(packed_scratch_floats(g.rows, p.k, p.a.transposed) * sizeof(float));
  } else {
    for (const int64_t i : {int64_t{0}, g.row_blocks - 1}) {
      for (const int64_t j : {int64_t{0}, g.col_blocks - 1}) {
        const auto block = g.at(i, j);
        auto& matmul = plan.matmuls[size_t(block.edge)];
        if (matmul == nullptr) matmul = make_matmul(p, plan, block.rows, block.cols);
        if (matmul == nullptr) continue;
        plan.library_bytes = std::max(plan.library_bytes, aligned(matmul->scratch_bytes()));
      }
    }
  }
  if (!plan.direct) {
    plan.product_bytes = aligned(size_t(g.rows) * size_t(g.cols + plan.pad) * sizeof(float));
  }
  return plan;
}

void run_product(const GemmProblem& p, const Plan& plan, const GemmBlocks::Block& block,
                 const Scratch& scratch) {
  Matrix a = p.a, b = p.b;
  a.data = a.at(block.row, 0), b.data = b.at(0, block.col);
  void* const product = plan.direct ? p.c.at(block.row, block.col) : scratch.product;
  if (plan.method == Method::kDots) {
    widen_lines(a, block.rows, p.k, scratch.a);
    dot_products(scratch.a, block.rows, p.k, b, block.cols, scratch.product, block.cols);
  } else if (p.k == 0) {
    std::fill_n(scratch.product, block.rows * (block.cols + plan.pad), 0.f);
  } else if (plan.method == Method::kPacked) {
    run_packed({.a = a,
                .b = b,
                .rows = block.rows,
                .cols = block.cols,
                .k = p.k,
                .tf32 = p.tf32,
                .c = static_cast<float*>(product),
                .ldc = plan.direct ? p.c.ld : block.cols},
               scratch.a);
  } else {
    plan.matmuls[size_t(block.edge)]->run(a.data, b.data, product, scratch.library);
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
                 // If the matmul does not write c, c += a·b is computed with c as the residual.
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
  return scratch;
}

// Workspace that the caller of run_problems() needs for itself. run_problems() reserves it together
// with its own memory, in one call.
struct Before {
  size_t bytes = 0;
  std::function<void(char*)> fill{};  // writes the caller's memory, before the GEMMs run
};

// Runs GEMMs and their epilogues. With kSwiGlu it computes only a · b_up; aux must already have the
// results of a · b. Threads take the blocks of all GEMMs, one GEMM after the other. A GEMM with a
// bias_grad must be the only one.
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
