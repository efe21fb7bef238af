#include "shale/comm/parallel/context/cut_attention.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/comm/parallel/context/cut_attention_internal.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"

namespace shale::comm {
namespace {

CutOptions checked(CutSequence& sequence, const Tensor& q, const AttentionOptions& options) {
  if (!options.causal || options.q_lengths.defined() || options.k_lengths.defined()) {
    throw ShapeError(
        "attention: with context parallelism, attention must be causal (a window, first_keys and a "
        "softcap are allowed) and must not have lengths");
  }
  const int64_t n = sequence.parts().count;
  if (q.size(0) % n != 0 || q.size(1) != 2 * sequence.chunk_tokens()) {
    throw ShapeError(cat("attention: q is ", q.shape(), " of a sequence of ", sequence.tokens(),
                         " tokens in ", sequence.parts().shards, " shards, expected [", n, " B, ",
                         2 * sequence.chunk_tokens(), ", H, D]"));
  }
  const float scale =
      options.scale != 0 ? options.scale : 1.0f / std::sqrt(static_cast<float>(q.size(3)));
  if (options.first_keys.defined()) {
    check_shape("attention", "first_keys", options.first_keys, {q.size(0), q.size(1)});
  }
  return {sequence,           scale,          options.window,    options.softcap,
          options.first_keys, options.blocks, options.first_head};
}

bool trades_heads(const CutSequence& sequence) {
  return sequence.kind() == ContextKind::kUlysses || sequence.kind() == ContextKind::kUlyssesRing;
}

std::shared_ptr<const CutAttention> make_op(const CutOptions& options) {
  return options.sequence.kind() == ContextKind::kRing ? ring_attention(options)
                                                       : gathered_attention(options);
}

}  // namespace

Tensor attention(CutSequence& cut, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  if (amp::wants_low({q, k, v})) {
    return attention(cut, amp::to_low(q), amp::to_low(k), amp::to_low(v), options);
  }
  check_attention(q, k, v);
  const CutOptions asked = checked(cut, q, options);
  if (trades_heads(cut)) return ulysses_attention(asked, {q, k, v});
  const auto op = make_op(asked);
  const Tensor lse = op->make_lse(q);
  Tensor out = empty(q.context(), q.shape(), q.dtype());
  op->forward({q, k, v}, out, lse);
  if (!needs_grad(q.context(), {q, k, v})) return out;
  const char* name = "attention of chunks";
  record(name, {q, k, v}, {&out},
         [op, q = SavedTensor(name, q), k = SavedTensor(name, k), v = SavedTensor(name, v),
          out = SavedTensor(name, out), lse = SavedTensor(name, lse)](BackwardArgs& args) {
           const Qkv in{q.get(), k.get(), v.get()};
           const Qkv grads{empty_like(in.q), empty_like(in.k), empty_like(in.v)};
           op->backward(in, out.get(), lse.get(), args.dy(), grads);
           return Grads{grads.q, grads.k, grads.v};
         });
  return out;
}

Tensor packed_attention(CutSequence& cut, const Tensor& qkv, int64_t heads,
                        const AttentionOptions& options) {
  if (amp::wants_low({qkv})) return packed_attention(cut, amp::to_low(qkv), heads, options);
  check_packed(qkv, heads);
  const auto parts_of = [heads](const Tensor& x) {
    const auto [q, k, v] = split_qkv(x, heads);
    return Qkv{q, k, v};
  };
  const Qkv in = parts_of(qkv);
  const CutOptions asked = checked(cut, in.q, options);
  if (trades_heads(cut)) return packed_ulysses_attention(asked, qkv, heads);
  const auto op = make_op(asked);
  const Tensor lse = op->make_lse(in.q);
  const Shape shape = {qkv.size(0), qkv.size(1), qkv.size(2) / 3};
  Tensor out = empty(qkv.context(), shape, qkv.dtype());
  const auto as_heads = [of_q = in.q.shape()](const Tensor& x) {
    return x.alias(of_q, contiguous_strides(of_q));
  };
  op->forward(in, as_heads(out), lse);
  if (!needs_grad(qkv.context(), {qkv})) return out;
  const char* name = "attention of packed chunks";
  record(name, {qkv}, {&out},
         [op, parts_of, as_heads, qkv = SavedTensor(name, qkv), out = SavedTensor(name, out),
          lse = SavedTensor(name, lse)](BackwardArgs& args) {
           const Tensor all = qkv.get();
           Tensor grad = empty_like(all);
           op->backward(parts_of(all), as_heads(out.get()), lse.get(), as_heads(args.dy()),
                        parts_of(grad));
           return Grads{grad};
         });
  return out;
}

}  // namespace shale::comm
