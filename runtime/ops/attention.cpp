#include "shale/runtime/ops/attention.h"

#include <array>
#include <cmath>

#include "shale/kernels/attention.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/block_mask.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

float scale_or_default(const AttentionOptions& options, int64_t head_size) {
  return options.scale != 0 ? options.scale : 1.0f / std::sqrt(static_cast<float>(head_size));
}

// Returns the view of an option that is a tensor on the device; an undefined view if the option is
// not set.
View option_view(const char* name, const Tensor& values, const Shape& shape) {
  if (!values.defined()) return {};
  check_dtype("attention", name, values, DType::kI32);
  check_shape("attention", name, values, shape);
  check_contiguous("attention", name, values);
  return values;
}

// Returns the lists of the block mask in `options`; undefined lists without a mask.
BlockMask::Lists block_lists(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  if (options.blocks == nullptr) return {};
  return options.blocks->lists(q.context(), {.queries = q.size(1),
                                             .keys = k.size(1),
                                             .first_head = options.first_head,
                                             .heads = q.size(2)});
}

kernels::BlockLists views_of(const BlockMask::Lists& lists) {
  return lists.keys.defined() ? lists.views() : kernels::BlockLists{};
}

Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lse,
               const AttentionOptions& options, const BlockMask::Lists& blocks) {
  Tensor out = empty(q.context(), q.shape(), q.dtype());
  const Shape batch = {q.size(0)}, rows = {q.size(0), q.size(1)};
  kernels::attention_fwd(q.exec(),
                         {.q = q,
                          .k = k,
                          .v = v,
                          .out = out,
                          .lse = lse,
                          .scale = scale_or_default(options, q.size(3)),
                          .causal = options.causal,
                          .q_lengths = option_view("q_lengths", options.q_lengths, batch),
                          .k_lengths = option_view("k_lengths", options.k_lengths, batch),
                          .window = options.window,
                          .first_keys = option_view("first_keys", options.first_keys, rows),
                          .softcap = options.softcap,
                          .blocks = views_of(blocks)});
  return out;
}

// Reports an attention op to the recorder. inputs: q, k and v, or a packed tensor.
void report(OpRecorder& to, const char* op, const std::vector<OpArgument>& inputs,
            const AttentionOptions& options, int64_t head_size, const Tensor& y) {
  const bool masked = options.q_lengths.defined() || options.k_lengths.defined() ||
                      options.first_keys.defined() || options.blocks != nullptr;
  to.add(op, inputs, {y},
         {{"causal", options.causal},
          {"scale", scale_or_default(options, head_size)},
          {"window", options.window},
          {"softcap", options.softcap},
          {"head_size", head_size},
          {"masked", masked}});
}

// The options that backward needs.
struct SavedOptions {
  float scale, softcap;
  bool causal;
  int64_t window;
  SavedTensor q_lengths, k_lengths, first_keys;
  BlockMask::Lists blocks;

  SavedOptions(const char* op, const AttentionOptions& options, const BlockMask::Lists& lists,
               int64_t head_size)
      : scale(scale_or_default(options, head_size)),
        softcap(options.softcap),
        causal(options.causal),
        window(options.window),
        blocks(lists) {
    if (options.q_lengths.defined()) q_lengths = SavedTensor(op, options.q_lengths);
    if (options.k_lengths.defined()) k_lengths = SavedTensor(op, options.k_lengths);
    if (options.first_keys.defined()) first_keys = SavedTensor(op, options.first_keys);
  }
  void apply(kernels::AttentionBwdArgs& args) const {
    args.scale = scale, args.causal = causal, args.window = window, args.softcap = softcap;
    args.blocks = views_of(blocks);
    if (q_lengths.defined()) args.q_lengths = q_lengths.get();
    if (k_lengths.defined()) args.k_lengths = k_lengths.get();
    if (first_keys.defined()) args.first_keys = first_keys.get();
  }
};

Tensor make_lse(const Tensor& q) {
  return empty(q.context(), {q.size(0), q.size(2), q.size(1)}, DType::kF32);
}

}  // namespace

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const auto& [name, x] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)}) {
    check_defined("attention", name, *x);
    if (x->ndim() != 4 || x->strides()[3] != 1) {
      throw ShapeError(cat("attention: ", name, " is ", x->shape(), " with strides ", x->strides(),
                           ", expected [B,T,H,D] with the last stride 1"));
    }
    check_dtype("attention", name, *x, q.dtype());
  }
  check_shape("attention", "v", v, k.shape());
  if (k.size(0) != q.size(0) || k.size(3) != q.size(3) || k.size(2) == 0 ||
      q.size(2) % k.size(2) != 0) {
    throw ShapeError(cat("attention: k is ", k.shape(), ", q is ", q.shape(),
                         ", expected equal batch and head size, and q's heads a multiple of k's"));
  }
}

void check_packed(const Tensor& qkv, int64_t heads) {
  check_contiguous("packed_attention", "qkv", qkv);
  if (qkv.ndim() == 3 && heads >= 1 && qkv.size(2) % (3 * heads) == 0) return;
  throw ShapeError(
      cat("packed_attention: qkv is ", qkv.shape(), ", expected [B,T,3*H*D] with H = ", heads));
}

std::array<Tensor, 3> split_qkv(const Tensor& qkv, int64_t heads) {
  const int64_t head_size = qkv.size(-1) / (3 * heads);
  const Shape shape = {qkv.size(0), qkv.size(1), heads, head_size};
  const int64_t row = qkv.size(2);
  const Shape strides = {qkv.size(1) * row, row, head_size, 1};
  return {qkv.alias(shape, strides, 0), qkv.alias(shape, strides, row / 3),
          qkv.alias(shape, strides, 2 * row / 3)};
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  if (amp::wants_low({q, k, v})) {
    return attention(amp::to_low(q), amp::to_low(k), amp::to_low(v), options);
  }
  check_attention(q, k, v);
  const Tensor lse = make_lse(q);
  const BlockMask::Lists blocks = block_lists(q, k, options);
  Tensor out = forward(q, k, v, lse, options, blocks);
  const char* op = "attention";
  if (OpRecorder* to = recorder_of(out)) report(*to, op, {q, k, v}, options, q.size(3), out);
  if (!needs_grad(q.context(), {q, k, v})) return out;
  const auto backward = [q = SavedTensor(op, q), k = SavedTensor(op, k), v = SavedTensor(op, v),
                         out = SavedTensor(op, out), lse = SavedTensor(op, lse),
                         saved = SavedOptions(op, options, blocks, q.size(3))](BackwardArgs& args) {
    const Tensor qs = q.get(), ks = k.get(), vs = v.get();
    Grads grads = {empty_like(qs), empty_like(ks), empty_like(vs)};
    kernels::AttentionBwdArgs kernel{.q = qs,
                                     .k = ks,
                                     .v = vs,
                                     .out = out.get(),
                                     .lse = lse.get(),
                                     .dout = args.dy(),
                                     .dq = grads[0],
                                     .dk = grads[1],
                                     .dv = grads[2]};
    saved.apply(kernel);
    kernels::attention_bwd(qs.exec(), kernel);
    return grads;
  };
  record(op, {q, k, v}, {&out}, backward);
  return out;
}

Tensor packed_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options) {
  if (amp::wants_low({qkv})) return packed_attention(amp::to_low(qkv), heads, options);
  check_packed(qkv, heads);
  const auto [q, k, v] = split_qkv(qkv, heads);
  const Tensor lse = make_lse(q);
  const BlockMask::Lists blocks = block_lists(q, k, options);
  const Tensor out4 = forward(q, k, v, lse, options, blocks);
  const Shape shape = {qkv.size(0), qkv.size(1), qkv.size(2) / 3};
  Tensor out = out4.alias(shape, contiguous_strides(shape));
  const char* op = "packed_attention";
  if (OpRecorder* to = recorder_of(out)) report(*to, op, {qkv}, options, q.size(3), out);
  if (!needs_grad(qkv.context(), {qkv})) return out;
  const auto backward = [qkv = SavedTensor(op, qkv), out = SavedTensor(op, out),
                         lse = SavedTensor(op, lse), heads,
                         saved = SavedOptions(op, options, blocks, q.size(3))](BackwardArgs& args) {
    const Tensor in = qkv.get();
    Tensor dqkv = empty_like(in);
    const auto [qs, ks, vs] = split_qkv(in, heads);
    const auto [dq, dk, dv] = split_qkv(dqkv, heads);
    const auto as_heads = [shape = qs.shape()](const Tensor& x) {
      return x.alias(shape, contiguous_strides(shape));
    };
    kernels::AttentionBwdArgs kernel{.q = qs,
                                     .k = ks,
                                     .v = vs,
                                     .out = as_heads(out.get()),
                                     .lse = lse.get(),
                                     .dout = as_heads(args.dy()),
                                     .dq = dq,
                                     .dk = dk,
                                     .dv = dv};
    saved.apply(kernel);
    kernels::attention_bwd(in.exec(), kernel);
    return Grads{dqkv};
  };
  record(op, {qkv}, {&out}, backward);
  return out;
}

}  // namespace shale
