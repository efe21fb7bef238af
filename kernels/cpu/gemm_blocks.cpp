#include "shale/kernels/cpu/gemm_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace shale::kernels::cpu {
namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// kRowStep, kColStep: rows and columns of oneDNN's AVX-512 register tile
constexpr int64_t kRowStep = 8;
constexpr int64_t kColStep = 48;
constexpr int64_t kMinRows = 64;
constexpr double kCallWork = 150e3;  // cost of a oneDNN call, in multiply-adds

// Maximum block size, and the cost of packing b, as the number of rows of c that take the same
// time. Measured with oneDNN 2.6 and AVX-512. One of oneDNN's two kernels needs a dense c and packs
// a transposed b cheaply.
struct Limits {
  int64_t rows, cols;
  double pack_rows;
};

Limits limits(int64_t m, int64_t n, int64_t k, GemmKind kind, bool avx512) {
  if (m <= kFewRows) return {m, 4 * kColStep, 0};  // enough blocks for all threads to read at once
  if (kind == GemmKind::kPacked) return {1024, 8 * kColStep, 8};
  if (!avx512) return {1024, 16 * kColStep, 2};
  switch (kind) {
    case GemmKind::kDenseBlock: return {256, 8 * kColStep, 6};  // the block fits the L2 cache
    case GemmKind::kDenseRows:
      if (n <= 4096) return {1024, n, 8};
      [[fallthrough]];
    case GemmKind::kStrided: return {1024, 16 * kColStep, 12};
    case GemmKind::kInterleave:
      if (k <= 8192) return {1024, 16 * kColStep, 18};
      return {1024, 8 * kColStep, 12};  // more columns would not fit the cache
    case GemmKind::kWide:
    case GemmKind::kPacked: break;
  }
  return {1024, 8 * kColStep, 2};
}

// Factor of the time of a block if operands are not packed. Without AVX-512, oneDNN 2.6 packs
// operands only for blocks that are at least as large as packs_without_avx512() says (its
// nocopy_checker_avx2). Unpacked operands cost up to twice the time, because rows at a multiple of
// 4 KiB compete for the same cache lines.
constexpr double kInPlace = 1.5;
bool packs_without_avx512(int64_t rows, int64_t cols) {
  return 1.0 / double(rows) + 1.0 / double(cols) < 0.0038;
}

// Returns the relative time per row of c with blocks of `rows` rows. It counts packing, calls, and
// the wait for the last block, as a weighted mean over thread counts. Small thread counts have more
// weight, because most ranks have few threads.
double cost(int64_t m, int64_t rows, int64_t col_blocks, double overhead_rows) {
  const int64_t blocks = ceil_div(m, rows) * col_blocks;
  double wait = 0;
  for (const auto& [threads, weight] : {std::pair{2, 1.0}, {4, 0.5}, {8, 0.125}, {16, 0.03125}}) {
    wait += weight * double(ceil_div(blocks, threads) * threads) / double(blocks);
  }
  return wait * (1 + overhead_rows / double(rows));
}

// Returns a block size for which the last block is not much smaller than the other blocks.
int64_t even(int64_t size, int64_t limit, int64_t step) {
  if (size <= limit) return size;
  return round_up(ceil_div(size, ceil_div(size, limit)), step);
}

}  // namespace

GemmBlocks::Block GemmBlocks::at(int64_t i, int64_t j) const {
  return {.row = i * rows,
          .col = j * cols,
          .rows = std::min(rows, m - i * rows),
          .cols = std::min(cols, n - j * cols),
          .row_block = i,
          .edge = (i == row_blocks - 1 ? 2 : 0) + (j == col_blocks - 1 ? 1 : 0)};
}

GemmBlocks::Block GemmBlocks::block(int64_t index) const {
  if (n > m) return at(index % row_blocks, index / row_blocks);
  return at(index / col_blocks, index % col_blocks);
}

GemmBlocks gemm_blocks(int64_t m, int64_t n, int64_t k, GemmKind kind, bool avx512) {
  const Limits limit = limits(m, n, k, kind, avx512);
  GemmBlocks g{.m = m, .n = n, .rows = m, .cols = even(n, limit.cols, kColStep)};
  g.col_blocks = ceil_div(n, g.cols);

  const double row_work = double(g.cols) * double(std::max<int64_t>(k, 1));
  const double overhead_rows = limit.pack_rows + kCallWork / row_work;
  double best = std::numeric_limits<double>::infinity();
  const int64_t most = std::max<int64_t>(1, m / kMinRows);
  int64_t rows = m;
  // Different counts of blocks can give the same number of rows per block. The loop tries each
  // number of rows once, so that planning takes no time even if m is large.
  for (int64_t count = std::min(ceil_div(m, limit.rows), most); count <= most;
       count = std::max(count + 1, ceil_div(m, std::max(rows - kRowStep, kRowStep)))) {
    rows = count == 1 ? m : round_up(ceil_div(m, count), kRowStep);
    const bool in_place =
        kind != GemmKind::kPacked && !avx512 && !packs_without_avx512(rows, g.cols);
    const double c = cost(m, rows, g.col_blocks, overhead_rows) * (in_place ? kInPlace : 1);
    if (c < best) best = c, g.rows = rows;
  }
  g.row_blocks = ceil_div(m, g.rows);
  return g;
}

GemmBlocks blocks_of_dots(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kTask = 1 << 16;  // elements of b per block: some microseconds of reading
  const int64_t worth = round_up(kTask / std::max<int64_t>(k, 1), 16);
  const int64_t cols = std::min(n, std::max<int64_t>(worth, 16));
  return {.m = m, .n = n, .rows = m, .cols = cols, .row_blocks = 1, .col_blocks = ceil_div(n, cols)};
}

}  // namespace shale::kernels::cpu
