#pragma once

#include "shale/kernels/gemm_problem.h"

namespace shale::kernels {

// Which dimension of the products is cut into groups.
enum class GroupedBy : uint8_t {
  kRows,   // rows of a and c; b has a matrix per group
  kInner,  // columns of a and rows of b; c has a matrix per group
};

// A product per group e, of rows [offsets[e], offsets[e + 1]) of what is cut:
//   kRows:  c[rows] = epilogue(a[rows] b[e]), or c[rows] += a[rows] b[e] with accumulate
//   kInner: c[e] = a[:, rows] b[rows], or += with accumulate
// A group without rows leaves c as it is with kRows, and with kInner sets c[e] to 0 unless it
// accumulates. Rows after the last offset are neither read nor written. Strides, dtypes and
// epilogues are those of GemmArgs: one of the last two strides of a, b is 1; c, aux are row-major;
// the epilogues are kNone, kSwiGlu and kDSwiGlu, these with kRows only. Matrices of b, b_up and c
// lie one after the other. With kInner a is the transpose of a row-major matrix, and b is
// row-major: their groups are whole lines. A GPU, which cannot report offsets that are wrong, takes
// those outside of [0, R] as its ends.
// The bits do not depend on the number of threads; those of a group depend on its own sizes alone.
struct GroupedGemmArgs {
  View offsets;  // [E + 1] i32, rising from 0, at most R
  GroupedBy by = GroupedBy::kRows;
  View a;  // kRows: [R, K]; kInner: [M, R]
  View b;  // kRows: [E, K, N]; kInner: [R, N]
  View c;  // kRows: [R, N]; kInner: [E, M, N]
  bool accumulate = false;
  Epilogue epilogue = Epilogue::kNone;
  View aux{};     // [R, N], as in GemmArgs, and the next three too
  View b_up{};    // [E, K, N]
  View aux_up{};  // [R, N]
  View c_up{};    // [R, N]

  int64_t groups() const { return offsets.numel() - 1; }
};

void check_args(const GroupedGemmArgs& a);

// All groups' product in one form. With kRows m is R; b and b_up are those of group 0, c of all.
// With kInner k is R, and c that of group 0.
struct GroupedProblem {
  GemmProblem product;
  int64_t groups = 0;
  GroupedBy by = GroupedBy::kRows;
  const int32_t* offsets = nullptr;
};
// Throws ShapeError or DTypeError.
GroupedProblem grouped_problem(const GroupedGemmArgs& args);

// The product of group `group`, whose rows are [begin, end).
GemmArgs group_of(const GroupedGemmArgs& args, int64_t group, int64_t begin, int64_t end);

inline Slot<GroupedGemmArgs> grouped_gemm{"grouped_gemm"};

}  // namespace shale::kernels
