#include "shale/kernels/grouped_gemm.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

constexpr const char* kOp = "grouped_gemm";

void require_ndim(const char* name, const View& view, int ndim, const char* want) {
  if (view.ndim() == ndim) return;
  throw ShapeError(cat(kOp, ": ", name, " is ", view, ", expected ", want));
}

// Returns the elements [begin, end) along dimension `dim`.
View cut(View view, int dim, int64_t begin, int64_t end) {
  if (!view.defined()) return view;
  view.data = static_cast<char*>(view.data) + begin * view.strides[dim] * dtype_size(view.dtype);
  view.shape[dim] = end - begin;
  return view;
}

// Returns matrix `index` of a view [E, rows, columns].
View matrix_of(const View& view, int64_t index) {
  if (!view.defined()) return view;
  View matrix = view;
  matrix.data = static_cast<char*>(view.data) + index * view.strides[0] * dtype_size(view.dtype);
  matrix.shape = {view.size(1), view.size(2)};
  matrix.strides = {view.stride(1), view.stride(2)};
  return matrix;
}

// Checks that the groups' matrices follow each other in memory. `first` is the matrix of group 0.
void require_stack(const char* name, const View& all, const Matrix& first) {
  if (all.size(0) <= 1 || all.numel() == 0) return;
  const int64_t lines = first.transposed ? all.size(2) : all.size(1);
  if (all.stride(0) == lines * first.ld) return;
  throw ShapeError(cat(kOp, ": ", name, " is ", all, " with strides ", all.strides,
                       ", expected consecutive matrices"));
}

// Returns a [outer, R] as a matrix. Checks that its columns are contiguous.
Matrix with_columns_as_lines(const View& a) {
  const bool lies_so = a.numel() == 0 || a.size(0) <= 1 || a.stride(0) == 1;
  if (!lies_so) {
    throw ShapeError(cat(kOp, ": a is ", a, " with strides ", a.strides,
                         ", expected stride 1 in the first dimension with groups of columns"));
  }
  const bool has_lines = a.size(1) > 1 && a.numel() > 0;
  return {.data = a.data,
          .dtype = a.dtype,
          .ld = has_lines ? a.stride(1) : a.size(0),
          .transposed = true};
}

void check_groups(const GroupedGemmArgs& a) {
  check_dense(kOp, "offsets", a.offsets, {a.offsets.numel()}, DType::kI32);
  if (a.align < 1) throw ShapeError(cat(kOp, ": align is ", a.align, ", expected at least 1"));
  if (a.groups() < 1) throw ShapeError(cat(kOp, ": offsets is ", a.offsets, ", expected [E + 1]"));
  if (a.by == GroupedBy::kInner) {
    require_ndim("a", a.a, 2, "[M, R]");
    require_ndim("c", a.c, 3, "[E, M, N]");
    require_ndim("b", a.b, 2, "[R, N]");
    check_shape(kOp, "b", a.b, {a.a.size(1), a.b.size(1)});
    check_shape(kOp, "c", a.c, {a.groups(), a.a.size(0), a.b.size(1)});
    if (a.epilogue == Epilogue::kNone) return;
    throw ShapeError(cat(kOp, ": an epilogue is set with kInner, expected kNone or kRows"));
  }
  require_ndim("a", a.a, 2, "[R, K]");
  require_ndim("b", a.b, 3, "[E, K, N]");
  const int64_t N = a.b.size(2);
  const Shape rows{a.a.size(0), N};
  check_shape(kOp, "b", a.b, {a.groups(), a.a.size(1), N});
  check_shape(kOp, "c", a.c, rows);
  const bool is_forward = a.epilogue == Epilogue::kSwiGlu;
  if (a.epilogue == Epilogue::kNone) return;
  if (!is_forward && a.epilogue != Epilogue::kDSwiGlu) {
    throw ShapeError(cat(kOp, ": the epilogue is GELU, expected SwiGLU or none"));
  }
  check_shape(kOp, "aux", a.aux, rows);
  check_shape(kOp, "aux_up", a.aux_up, rows);
  if (is_forward) check_shape(kOp, "b_up", a.b_up, a.b.shape);
  if (!is_forward) check_shape(kOp, "c_up", a.c_up, rows);
}

}  // namespace

GroupedProblem grouped_problem(const GroupedGemmArgs& a) {
  GemmArgs whole{.a = a.a,
                 .b = a.b,
                 .c = a.c,
                 .accumulate = a.accumulate,
                 .epilogue = a.epilogue,
                 .aux = a.aux,
                 .aux_up = a.aux_up,
                 .c_up = a.c_up};
  GroupedProblem grouped{
      .groups = a.groups(), .by = a.by, .offsets = a.offsets.as<int32_t>(), .align = a.align};
  if (a.by == GroupedBy::kInner) {
    whole.c = matrix_of(a.c, 0);
    grouped.product = gemm_problem(whole);
    grouped.product.a = with_columns_as_lines(a.a);
    require_stack("c", a.c, grouped.product.c);
    if (!grouped.product.b.transposed) return grouped;
    throw ShapeError(cat(kOp, ": b is ", a.b, " with strides ", a.b.strides,
                         ", expected stride 1 in the last dimension with groups of rows of b"));
  }
  whole.b = matrix_of(a.b, 0);
  whole.b_up = matrix_of(a.b_up, 0);
  grouped.product = gemm_problem(whole);
  require_stack("b", a.b, grouped.product.b);
  if (a.b_up.defined()) require_stack("b_up", a.b_up, grouped.product.b_up);
  return grouped;
}

void check_args(const GroupedGemmArgs& a) {
  check_groups(a);
  grouped_problem(a);
}

GemmArgs group_of(const GroupedGemmArgs& a, int64_t group, int64_t begin, int64_t end) {
  if (a.by == GroupedBy::kInner) {
    return {.a = cut(a.a, 1, begin, end),
            .b = cut(a.b, 0, begin, end),
            .c = matrix_of(a.c, group),
            .accumulate = a.accumulate};
  }
  return {.a = cut(a.a, 0, begin, end),
          .b = matrix_of(a.b, group),
          .c = cut(a.c, 0, begin, end),
          .accumulate = a.accumulate,
          .epilogue = a.epilogue,
          .aux = cut(a.aux, 0, begin, end),
          .b_up = matrix_of(a.b_up, group),
          .aux_up = cut(a.aux_up, 0, begin, end),
          .c_up = cut(a.c_up, 0, begin, end)};
}

}  // namespace shale::kernels
