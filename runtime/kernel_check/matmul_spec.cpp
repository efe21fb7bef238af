#include "shale/runtime/kernel_check/matmul_spec.h"

namespace shale::kernel_check {
namespace {

// Returns the bytes from the first to the last element of a matrix: `lines` lines of `length`
// elements, with stride `ld` elements between lines.
int64_t extent_bytes(int64_t lines, int64_t length, int64_t ld, DType dtype) {
  return lines == 0 ? 0 : ((lines - 1) * ld + length) * dtype_size(dtype);
}

}  // namespace

int64_t MatmulSpec::a_bytes() const {
  return a_transposed ? extent_bytes(k, m, lda, in) : extent_bytes(m, k, lda, in);
}
int64_t MatmulSpec::b_bytes() const {
  return b_transposed ? extent_bytes(n, k, ldb, in) : extent_bytes(k, n, ldb, in);
}
int64_t MatmulSpec::c_bytes() const {
  return extent_bytes(m, n, ldc, out);
}

MatmulSpec matmul_spec(const kernels::GemmArgs& args) {
  MatmulSpec spec{.m = args.a.size(0),
                  .n = args.b.size(1),
                  .k = args.a.size(1),
                  .ldc = args.c.stride(0),
                  .in = args.a.dtype,
                  .out = args.c.dtype,
                  .accumulate = args.accumulate};
  spec.a_transposed = args.a.stride(1) != 1;
  spec.b_transposed = args.b.stride(1) != 1;
  spec.lda = args.a.stride(spec.a_transposed ? 1 : 0);
  spec.ldb = args.b.stride(spec.b_transposed ? 1 : 0);
  return spec;
}

}  // namespace shale::kernel_check
