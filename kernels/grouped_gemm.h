#pragma once

#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"

namespace shale::kernels {

// The dimension that is divided into groups.
enum class GroupedBy : uint8_t {
  kRows,   // rows of a and c; b has a matrix per group
  kInner,  // columns of a and rows of b; c has a matrix per group
};

// One GEMM per group e, with rows [offsets[e], offsets[e + 1]) of the divided dimension:
//   kRows:  c[rows] = epilogue(a[rows] b[e]), or c[rows] += a[rows] b[e] with accumulate
//   kInner: c[e] = a[:, rows] b[rows], or += with accumulate
// A group without rows leaves c unchanged with kRows. With kInner it sets c[e] to 0, or leaves it
// with accumulate. Rows after the last offset are neither read nor written. Strides, dtypes and
// epilogues are as in GemmArgs: one of the last two strides of a and of b is 1; c and aux are
// row-major; the epilogues are kNone and, with kRows only, kSwiGlu and kDSwiGlu. The matrices of b,
// b_up and c are contiguous in memory, one after the other. With kInner, a is the transpose of a
// row-major matrix and b is row-major, so groups are whole lines. GPUs cannot report wrong offsets
// and clamp them to [0, R].
// The bits do not depend on the number of threads; those of a group depend only on its own sizes.
struct GroupedGemmArgs {
  View offsets;  // [E + 1] i32, non-decreasing from 0, at most R
  GroupedBy by = GroupedBy::kRows;
  View a;  // kRows: [R, K]; kInner: [M, R]
  View b;  // kRows: [E, K, N]; kInner: [R, N]
  View c;  // kRows: [R, N]; kInner: [E, M, N]
  bool accumulate = false;
  Epilogue epilogue = Epilogue::kNone;
  View aux{};     // [R, N]; aux, b_up, aux_up and c_up are as in GemmArgs
  View b_up{};    // [E, K, N]
  View aux_up{};  // [R, N]
  View c_up{};    // [R, N]
  // A divisor of all offsets. Hopper's kernels process kInner groups in steps of 16 rows; if align
  // does not guarantee that, the portable kernels are used.
  int64_t align = 1;
  // GPUs: tile to use instead of grouped_gemm_tile()'s; for tests. Must be valid until the call
  // returns.
  const GemmTile* tile = nullptr;

  int64_t groups() const { return offsets.numel() - 1; }
};

void check_args(const GroupedGemmArgs& a);

// GroupedGemmArgs after all checks. With kRows, m is R, b and b_up are those of group 0, and c is
// that of all groups. With kInner, k is R and c is that of group 0.
struct GroupedProblem {
  GemmProblem product;
  int64_t groups = 0;
  GroupedBy by = GroupedBy::kRows;
  const int32_t* offsets = nullptr;
  int64_t align = 1;
};
// Checks the arguments. Throws ShapeError or DTypeError.
GroupedProblem grouped_problem(const GroupedGemmArgs& args);

// Returns the GEMM of one group, whose rows are [begin, end).
GemmArgs group_of(const GroupedGemmArgs& args, int64_t group, int64_t begin, int64_t end);

inline Slot<GroupedGemmArgs> grouped_gemm{"grouped_gemm"};

}  // namespace shale::kernels
