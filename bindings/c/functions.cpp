// Differentiable functions of the C API, which call runtime/ops, and backward.
#include <array>
#include <span>

#include "shale/bindings/c/memory.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/collective_ops.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/create.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/index.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/softmax.h"
#include "shale/runtime/ops/swiglu.h"

namespace shale::c {
namespace {

Tensor unary(shale_unary_op op, const Tensor& x) {
  switch (op) {
    case SHALE_NEG: return neg(x);
    case SHALE_ABS: return abs(x);
    case SHALE_EXP: return exp(x);
    case SHALE_LOG: return log(x);
    case SHALE_SQRT: return sqrt(x);
    case SHALE_RSQRT: return rsqrt(x);
    case SHALE_RELU: return relu(x);
    case SHALE_SIGMOID: return sigmoid(x);
    case SHALE_TANH: return tanh(x);
    case SHALE_SILU: return silu(x);
    case SHALE_SOFTPLUS: return softplus(x);
    case SHALE_SIN: return sin(x);
    case SHALE_COS: return cos(x);
    case SHALE_GELU_TANH: return gelu(x, Gelu::kTanh);
    case SHALE_GELU_ERF: return gelu(x, Gelu::kErf);
    default: fail_argument("op is ", op, ", expected a SHALE_... of shale_unary_op");
  }
}

// b: a tensor or a number.
template <typename B>
Tensor binary(shale_binary_op op, const Tensor& a, const B& b) {
  switch (op) {
    case SHALE_ADD: return add(a, b);
    case SHALE_SUB: return sub(a, b);
    case SHALE_MUL: return mul(a, b);
    case SHALE_DIV: return div(a, b);
    case SHALE_MAXIMUM: return maximum(a, b);
    case SHALE_MINIMUM: return minimum(a, b);
    case SHALE_LESS: return less(a, b);
    case SHALE_LESS_EQUAL: return less_equal(a, b);
    case SHALE_EQUAL: return equal(a, b);
    default: fail_argument("op is ", op, ", expected a SHALE_... of shale_binary_op");
  }
}

Tensor reduce(shale_reduce_op op, const Tensor& x, const std::vector<int>& dims, bool keep) {
  if (dims.empty() && op == SHALE_SUM) return sum(contiguous(x));
  if (dims.empty() && op == SHALE_MEAN) return mean(contiguous(x));
  if (dims.empty()) fail_argument("count is 0, expected dimensions for SHALE_MAX and SHALE_MIN");
  switch (op) {
    case SHALE_SUM: return sum(x, dims, keep);
    case SHALE_MEAN: return mean(x, dims, keep);
    case SHALE_MAX: return max(x, dims, keep);
    case SHALE_MIN: return min(x, dims, keep);
    default: fail_argument("op is ", op, ", expected a SHALE_... of shale_reduce_op");
  }
}

std::vector<int> dims_of(int32_t count, const int32_t* dims) {
  if (count < 0 || count > SHALE_MAX_DIMS) {
    fail_argument("count is ", count, ", expected 0 to ", SHALE_MAX_DIMS);
  }
  if (count > 0) wanted(dims, "dims");
  return {dims, dims + count};
}

const std::shared_ptr<const RopeTable>& rope_table(double theta, int64_t head_size) {
  auto& table = session().ropes[{theta, head_size}];
  if (table == nullptr) {
    table = std::make_shared<const RopeTable>(RopeConfig{.theta = theta}, head_size);
  }
  return table;
}

std::optional<uint64_t> optional_seed(const uint64_t* seed) {
  return seed != nullptr ? std::optional(*seed) : std::nullopt;
}

constexpr double kRopeTheta = 10'000;  // base of the frequencies (arXiv:2104.09864)
constexpr int32_t kMostTensors = 65536;

}  // namespace
}  // namespace shale::c

using namespace shale::c;
using shale::Tensor;

shale_status shale_unary(shale_unary_op op, shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_unary", out, [&] { return unary(op, tensor_of(x, "x")); });
}

shale_status shale_binary(shale_binary_op op, shale_tensor a, shale_tensor b, shale_tensor* out) {
  return call_for_tensor("shale_binary", out,
                         [&] { return binary(op, tensor_of(a, "a"), tensor_of(b, "b")); });
}

shale_status shale_binary_scalar(shale_binary_op op, shale_tensor a, float b, shale_tensor* out) {
  return call_for_tensor("shale_binary_scalar", out,
                         [&] { return binary(op, tensor_of(a, "a"), b); });
}

shale_status shale_pow(shale_tensor x, float exponent, shale_tensor* out) {
  return call_for_tensor("shale_pow", out, [&] { return pow(tensor_of(x, "x"), exponent); });
}

shale_status shale_clamp(shale_tensor x, float low, float high, shale_tensor* out) {
  return call_for_tensor("shale_clamp", out, [&] { return clamp(tensor_of(x, "x"), low, high); });
}

shale_status shale_where(shale_tensor condition, shale_tensor a, shale_tensor b,
                         shale_tensor* out) {
  return call_for_tensor("shale_where", out, [&] {
    return where(tensor_of(condition, "condition"), tensor_of(a, "a"), tensor_of(b, "b"));
  });
}

shale_status shale_cast(shale_tensor x, shale_dtype dtype, shale_tensor* out) {
  return call_for_tensor("shale_cast", out,
                         [&] { return cast(tensor_of(x, "x"), dtype_of_code(dtype)); });
}

shale_status shale_reduce(shale_reduce_op op, shale_tensor x, int32_t count, const int32_t* dims,
                          int32_t keep, shale_tensor* out) {
  return call_for_tensor("shale_reduce", out, [&] {
    return reduce(op, tensor_of(x, "x"), dims_of(count, dims), keep != 0);
  });
}

shale_status shale_argmax(shale_tensor x, int32_t dim, int32_t keep, shale_tensor* out) {
  return call_for_tensor("shale_argmax", out,
                         [&] { return argmax(tensor_of(x, "x"), dim, keep != 0); });
}

shale_status shale_softmax(shale_tensor x, int32_t dim, shale_tensor* out) {
  return call_for_tensor("shale_softmax", out, [&] { return softmax(tensor_of(x, "x"), dim); });
}

shale_status shale_log_softmax(shale_tensor x, int32_t dim, shale_tensor* out) {
  return call_for_tensor("shale_log_softmax", out,
                         [&] { return log_softmax(tensor_of(x, "x"), dim); });
}

shale_status shale_reshape(shale_tensor x, int32_t ndim, const int64_t* shape, shale_tensor* out) {
  return call_for_tensor("shale_reshape", out, [&] {
    if (ndim < 0 || ndim > SHALE_MAX_DIMS) {
      fail_argument("ndim is ", ndim, ", expected 0 to ", SHALE_MAX_DIMS);
    }
    if (ndim > 0) wanted(shape, "shape");
    const std::span<const int64_t> sizes(shape, static_cast<size_t>(ndim));
    return reshape(tensor_of(x, "x"), shale::Shape(sizes));
  });
}

shale_status shale_transpose(shale_tensor x, int32_t dim0, int32_t dim1, shale_tensor* out) {
  return call_for_tensor("shale_transpose", out,
                         [&] { return transpose(tensor_of(x, "x"), dim0, dim1); });
}

shale_status shale_slice(shale_tensor x, int32_t dim, int64_t begin, int64_t end,
                         shale_tensor* out) {
  return call_for_tensor("shale_slice", out,
                         [&] { return slice(tensor_of(x, "x"), dim, begin, end); });
}

shale_status shale_contiguous(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_contiguous", out, [&] { return contiguous(tensor_of(x, "x")); });
}

shale_status shale_concat(int32_t count, const shale_tensor* tensors, int32_t dim,
                          shale_tensor* out) {
  return call_for_tensor("shale_concat", out, [&] {
    if (count < 1 || count > kMostTensors) {
      fail_argument("count is ", count, ", expected 1 to ", kMostTensors);
    }
    wanted(tensors, "tensors");
    std::vector<Tensor> parts;
    for (int32_t i = 0; i < count; ++i) parts.push_back(tensor_of(tensors[i], "tensors"));
    return concat(parts, dim);
  });
}

shale_status shale_gather(shale_tensor x, int32_t dim, shale_tensor index, shale_tensor* out) {
  return call_for_tensor("shale_gather", out,
                         [&] { return gather(tensor_of(x, "x"), dim, tensor_of(index, "index")); });
}

shale_status shale_cumsum(shale_tensor x, int32_t dim, shale_tensor* out) {
  return call_for_tensor("shale_cumsum", out,
                         [&] { return cumsum(contiguous(tensor_of(x, "x")), dim); });
}

shale_status shale_scatter(shale_tensor x, int32_t dim, shale_tensor index, shale_tensor source,
                           shale_tensor* out) {
  return call_for_tensor("shale_scatter", out, [&] {
    return scatter(tensor_of(x, "x"), dim, tensor_of(index, "index"), tensor_of(source, "source"));
  });
}

shale_status shale_scatter_add(shale_tensor x, int32_t dim, shale_tensor index, shale_tensor source,
                               shale_tensor* out) {
  return call_for_tensor("shale_scatter_add", out, [&] {
    return scatter_add(tensor_of(x, "x"), dim, tensor_of(index, "index"),
                       tensor_of(source, "source"));
  });
}

shale_status shale_randn(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                         const int64_t* shape, const uint64_t* seed, shale_tensor* out) {
  return call_for_tensor("shale_randn", out, [&] {
    check_runtime(runtime);
    return randn(*session().context, shape_of(ndim, shape, "shape"), dtype_of_code(dtype),
                 optional_seed(seed));
  });
}

shale_status shale_uniform(shale_runtime runtime, shale_dtype dtype, int32_t ndim,
                           const int64_t* shape, float low, float high, const uint64_t* seed,
                           shale_tensor* out) {
  return call_for_tensor("shale_uniform", out, [&] {
    check_runtime(runtime);
    return uniform(*session().context, shape_of(ndim, shape, "shape"), low, high,
                   dtype_of_code(dtype), optional_seed(seed));
  });
}

shale_status shale_arange(shale_runtime runtime, shale_dtype dtype, double begin, double end,
                          double step, shale_tensor* out) {
  return call_for_tensor("shale_arange", out, [&] {
    check_runtime(runtime);
    return arange(*session().context, begin, end, step, dtype_of_code(dtype));
  });
}

shale_status shale_linspace(shale_runtime runtime, shale_dtype dtype, double first, double last,
                            int64_t count, shale_tensor* out) {
  return call_for_tensor("shale_linspace", out, [&] {
    check_runtime(runtime);
    return linspace(*session().context, first, last, count, dtype_of_code(dtype));
  });
}

shale_status shale_assign(shale_tensor to, shale_tensor x) {
  return call("shale_assign", [&] {
    const Tensor target = tensor_of(to, "to");
    check_writable(target);
    copy_(target, tensor_of(x, "x"));
  });
}

shale_status shale_tensor_to(shale_tensor x, int32_t host, shale_tensor* out) {
  return call_for_tensor("shale_tensor_to", out, [&] {
    return to(tensor_of(x, "x"), host != 0 ? host_context() : *session().context);
  });
}

shale_status shale_matmul(shale_tensor a, shale_tensor b, shale_tensor* out) {
  return call_for_tensor("shale_matmul", out,
                         [&] { return matmul(tensor_of(a, "a"), tensor_of(b, "b")); });
}

shale_status shale_linear(shale_tensor x, shale_tensor weight, shale_tensor bias,
                          shale_tensor residual, shale_tensor* out) {
  return call_for_tensor("shale_linear", out, [&] {
    return linear(tensor_of(x, "x"), tensor_of(weight, "weight"), optional_tensor(bias, "bias"),
                  optional_tensor(residual, "residual"));
  });
}

shale_status shale_swiglu(shale_tensor x, shale_tensor w_gate, shale_tensor w_up,
                          shale_tensor w_down, shale_tensor residual, shale_tensor* out) {
  return call_for_tensor("shale_swiglu", out, [&] {
    return swiglu(tensor_of(x, "x"), tensor_of(w_gate, "w_gate"), tensor_of(w_up, "w_up"),
                  tensor_of(w_down, "w_down"), optional_tensor(residual, "residual"));
  });
}

shale_status shale_embedding(shale_tensor ids, shale_tensor table, shale_tensor positions,
                             shale_tensor* out) {
  return call_for_tensor("shale_embedding", out, [&] {
    return embedding(tensor_of(ids, "ids"), tensor_of(table, "table"),
                     optional_tensor(positions, "positions"));
  });
}

shale_status shale_layer_norm(shale_tensor x, shale_tensor gain, shale_tensor bias, float eps,
                              shale_tensor* out) {
  return call_for_tensor("shale_layer_norm", out, [&] {
    checked_number(eps, "eps", 0);
    return layer_norm(tensor_of(x, "x"), tensor_of(gain, "gain"), optional_tensor(bias, "bias"),
                      eps);
  });
}

shale_status shale_rms_norm(shale_tensor x, shale_tensor gain, float eps, shale_tensor* out) {
  return call_for_tensor("shale_rms_norm", out, [&] {
    checked_number(eps, "eps", 0);
    return rms_norm(tensor_of(x, "x"), tensor_of(gain, "gain"), eps);
  });
}

shale_status shale_rope(shale_tensor x, double theta, shale_tensor* out) {
  return call_for_tensor("shale_rope", out, [&] {
    checked_number(theta, "theta", 0);
    const Tensor tensor = tensor_of(x, "x");
    if (tensor.ndim() != 4) fail_argument("x is ", tensor, ", expected [B, T, H, D]");
    return rope(tensor, rope_table(theta == 0 ? kRopeTheta : theta, tensor.size(3)));
  });
}

shale_status shale_attention(shale_tensor q, shale_tensor k, shale_tensor v, int32_t causal,
                             float scale, int64_t window, shale_tensor* out) {
  return call_for_tensor("shale_attention", out, [&] {
    checked_number(scale, "scale", 0);
    if (window < 0) fail_argument("window is ", window, ", expected 0 or more");
    const shale::AttentionOptions options{.causal = causal != 0, .scale = scale, .window = window};
    return attention(tensor_of(q, "q"), tensor_of(k, "k"), tensor_of(v, "v"), options);
  });
}

shale_status shale_dropout(shale_tensor x, float p, uint32_t site, shale_tensor* out) {
  return call_for_tensor("shale_dropout", out, [&] { return dropout(tensor_of(x, "x"), p, site); });
}

shale_status shale_cross_entropy(shale_tensor logits, shale_tensor targets, int64_t vocab,
                                 shale_tensor* out) {
  return call_for_tensor("shale_cross_entropy", out, [&] {
    return cross_entropy(tensor_of(logits, "logits"), tensor_of(targets, "targets"), vocab);
  });
}

shale_status shale_mse_loss(shale_tensor x, shale_tensor target, shale_tensor* out) {
  return call_for_tensor("shale_mse_loss", out,
                         [&] { return mse_loss(tensor_of(x, "x"), tensor_of(target, "target")); });
}

shale_status shale_bce_with_logits_loss(shale_tensor x, shale_tensor target, shale_tensor* out) {
  return call_for_tensor("shale_bce_with_logits_loss", out, [&] {
    return bce_with_logits_loss(tensor_of(x, "x"), tensor_of(target, "target"));
  });
}

shale_status shale_all_gather(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_all_gather", out, [&] {
    return shale::comm::all_gather(*session().group, tensor_of(x, "x"));
  });
}

shale_status shale_reduce_scatter_sum(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_reduce_scatter_sum", out, [&] {
    return shale::comm::reduce_scatter_sum(*session().group, tensor_of(x, "x"));
  });
}

shale_status shale_all_reduce_sum(shale_tensor x, shale_tensor* out) {
  return call_for_tensor("shale_all_reduce_sum", out, [&] {
    return shale::comm::all_reduce_sum(*session().group, tensor_of(x, "x"));
  });
}

shale_status shale_backward(shale_tensor loss) {
  return call("shale_backward", [&] { backward(tensor_of(loss, "loss")); });
}

shale_status shale_backward_retain(shale_tensor loss) {
  return call("shale_backward_retain", [&] { backward(tensor_of(loss, "loss"), {}, true); });
}

shale_status shale_set_inference(shale_runtime runtime, int32_t inference) {
  return call("shale_set_inference", [&] {
    check_runtime(runtime);
    session().inference.clear();
    if (inference == 0) return;
    session().inference.emplace_back(*session().context);
    if (session().host != nullptr) session().inference.emplace_back(*session().host);
  });
}
