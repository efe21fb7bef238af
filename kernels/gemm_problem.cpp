#include "shale/kernels/gemm_problem.h"

#include "shale/base/gpu_model.h"

namespace shale::kernels {
namespace {

template <typename E, typename... Texts>
void require(bool condition, const Texts&... texts) {
  if (!condition) throw E(cat("gemm: ", texts...));
}

void check_shape(const char* name, const View& view, const Shape& want) {
  require<ShapeError>(view.shape == want, name, " is ", view, ", expected ", want);
}

void check_dtype(const char* name, const View& view, DType want) {
  require<DTypeError>(view.dtype == want, name, " is ", view, ", expected ", dtype_name(want));
}

// A dimension of size 1 may have any stride, so its stride is not checked.
bool rows_are_dense(const View& v) {
  return v.size(1) <= 1 || v.stride(1) == 1;
}
bool cols_are_dense(const View& v) {
  return v.size(0) <= 1 || v.stride(0) == 1;
}

Matrix matrix(const char* name, const View& v, bool may_be_transposed) {
  const bool empty = v.numel() == 0;
  const bool row_major = empty || rows_are_dense(v);
  require<ShapeError>(row_major || (may_be_transposed && cols_are_dense(v)), name, " is ", v,
                      " with strides ", v.strides, ", expected stride 1 in ",
                      may_be_transposed ? "one dimension" : "the last dimension");
  const int64_t line = row_major ? v.size(1) : v.size(0);
  const int64_t lines = row_major ? v.size(0) : v.size(1);
  const int64_t ld = lines > 1 && !empty ? v.stride(row_major ? 0 : 1) : line;
  require<ShapeError>(ld >= line, name, " is ", v, " with strides ", v.strides,
                      ": its rows overlap");
  return {.data = v.data, .dtype = v.dtype, .ld = ld, .transposed = !row_major};
}

// Returns a [K, N] view as the transpose of a row-major weight [N, K], even if K or N is 1.
Matrix weight(const char* name, const View& v, DType dtype, const Shape& shape) {
  check_shape(name, v, shape);
  check_dtype(name, v, dtype);
  const bool lies_so = v.numel() == 0 || cols_are_dense(v);
  require<ShapeError>(lies_so, name, " is ", v, " with strides ", v.strides,
                      ", expected stride 1 in the first dimension with a SwiGLU epilogue");
  const View stored = {.data = v.data,
                       .dtype = v.dtype,
                       .shape = {v.size(1), v.size(0)},
                       .strides = {v.stride(1), v.stride(0)}};
  Matrix result = matrix(name, stored, false);
  result.transposed = true;
  return result;
}

bool is_dgelu(Epilogue e) {
  return e == Epilogue::kDGeluTanh || e == Epilogue::kDGeluErf;
}
bool is_swiglu(Epilogue e) {
  return e == Epilogue::kSwiGlu || e == Epilogue::kDSwiGlu;
}

// Checks that each of b_up, aux_up and c_up is given if and only if the epilogue uses it, and that
// SwiGLU has neither bias nor residual.
void check_swiglu(const GemmArgs& args) {
  const bool either = is_swiglu(args.epilogue);
  for (const auto& [name, view, wanted] :
       {std::tuple{"b_up", &args.b_up, args.epilogue == Epilogue::kSwiGlu},
        {"aux_up", &args.aux_up, either},
        {"c_up", &args.c_up, args.epilogue == Epilogue::kDSwiGlu}}) {
    require<ShapeError>(view->defined() == wanted, name, " is ",
                        wanted ? "missing: this SwiGLU epilogue needs it"
                               : "given, but the epilogue does not use it; omit it");
  }
  require<ShapeError>(!either || !(args.bias.defined() || args.residual.defined()),
                      "a SwiGLU epilogue is incompatible with bias and residual");
}

// Checks which arguments may be combined.
void check_combination(const GemmArgs& args) {
  const bool activation = args.epilogue != Epilogue::kNone;
  require<ShapeError>(
      !args.accumulate || !(activation || args.bias.defined() || args.residual.defined()),
      "accumulate is incompatible with bias, epilogue and residual");
  require<ShapeError>(
      args.aux.defined() == activation, "aux is ",
      activation ? "missing: the epilogue needs it" : "given, but there is no epilogue");
  require<ShapeError>(!args.bias_grad.defined() || is_dgelu(args.epilogue),
                      "bias_grad is given without a kDGelu epilogue; omit it");
  check_swiglu(args);
}

}  // namespace

GemmProblem gemm_problem(const GemmArgs& args) {
  check_combination(args);
  for (const auto& [name, view] : {std::pair{"a", &args.a}, {"b", &args.b}, {"c", &args.c}}) {
    require<ShapeError>(view->ndim() == 2, name, " is ", *view, ", expected two dimensions");
  }
  const DType in = args.a.dtype;
  require<DTypeError>(in == DType::kF32 || in == DType::kBF16 || in == DType::kF16, "a is ", args.a,
                      ", expected fp32, bf16 or fp16");
  const int64_t m = args.a.size(0), k = args.a.size(1), n = args.b.size(1);
  check_shape("b", args.b, {k, n});
  check_dtype("b", args.b, in);
  check_shape("c", args.c, {m, n});
  if (args.c.dtype != DType::kF32) check_dtype("c", args.c, in);

  GemmProblem p;
  p.m = m, p.n = n, p.k = k;
  p.a = matrix("a", args.a, true);
  p.b = matrix("b", args.b, true);
  if (args.epilogue == Epilogue::kSwiGlu) {
    p.a = matrix("a", args.a, false);
    p.b = weight("b", args.b, in, {k, n});
    p.b_up = weight("b_up", args.b_up, in, {k, n});
  }
  p.c = matrix("c", args.c, false);
  p.epilogue = args.epilogue;
  p.accumulate = args.accumulate;
  p.accumulate_bias_grad = args.accumulate_bias_grad;

  const auto optional = [](const char* name, const View& view, const Shape& shape, DType dtype) {
    if (!view.defined()) return Matrix{};
    check_shape(name, view, shape);
    check_dtype(name, view, dtype);
    if (shape.ndim() == 2) return matrix(name, view, false);
    require<ShapeError>(view.contiguous(), name, " is ", view, " with strides ", view.strides,
                        ", expected [1]");
    return Matrix{.data = view.data, .dtype = dtype, .ld = shape[0]};
  };
  const View& sums = args.bias_grad;
  const DType of_sums = sums.defined() && sums.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  p.bias = optional("bias", args.bias, {n}, in);
  p.aux = optional("aux", args.aux, {m, n}, in);
  p.aux_up = optional("aux_up", args.aux_up, {m, n}, in);
  p.c_up = optional("c_up", args.c_up, {m, n}, args.c.dtype);
  p.residual = optional("residual", args.residual, {m, n}, args.c.dtype);
  p.bias_grad = optional("bias_grad", sums, {n}, of_sums);
  return p;
}

bool takes_tf32(const Exec& exec, const GemmProblem& problem) {
  if (!exec.tf32 || problem.a.dtype != DType::kF32) return false;
  constexpr int kFirst = 80;
  if (exec.device.type != DeviceType::kCpu && exec.device.arch < kFirst) {
    throw UnavailableError(cat("gemm: tf32 needs compute capability ", capability_text(kFirst),
                               " or later, ", exec.device, " has ",
                               capability_text(exec.device.arch)));
  }
  return true;
}

GemmProblem gemm_problem(const Exec& exec, const GemmArgs& args) {
  GemmProblem problem = gemm_problem(args);
  problem.tf32 = takes_tf32(exec, problem);
  return problem;
}

}  // namespace shale::kernels
