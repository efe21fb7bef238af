#include <utility>

#include "shale/comm/parallel/context/cut_attention_internal.h"
#include "shale/kernels/attention.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/ops/block_mask.h"

// ContextKind::kGather: every rank gathers the keys and values of all tokens. Each chunk of its
// queries attends to tokens up to the chunk's end. H is the number of query heads, G of key heads;
// D is the head size.
namespace shale::comm {
namespace {

constexpr int64_t kMostGroups = 4;
// Minimum bytes of keys and values per transfer: shorter transfers are mostly latency.
constexpr int64_t kLeastGroupBytes = 64 << 10;

class GatheredAttention final : public CutAttention, private CutOptions {
 public:
  explicit GatheredAttention(const CutOptions& options) : CutOptions(options) {}

  // Allocates lse for two chunks, [2, B * H * S].
  Tensor make_lse(const Tensor& q) const override {
    return empty(q.context(), {2, q.size(0) * q.size(1) * q.size(2) / 2}, DType::kF32);
  }
  void forward(const Qkv& in, const Tensor& out, const Tensor& lse) const override;
  void backward(const Qkv& in, const Tensor& out, const Tensor& lse, const Tensor& dout,
                const Qkv& grads) const override;

 private:
  // Calls visit(half, chunk index) for this rank's two chunks of queries, the later chunk first.
  template <typename Visit>
  void for_chunks(const Visit& visit) const {
    const SequenceParts parts = sequence.parts();
    for (const int half : {1, 0}) visit(half, parts.chunk(parts.first, half));
  }
  // View of one chunk of this rank's tensor: [B, S, H, D].
  Tensor chunk_of(const Tensor& x, int half) const {
    return x.alias({x.size(0), S(), x.size(2), x.size(3)}, x.strides(),
                   half * S() * x.strides()[1]);
  }
  // First keys of the queries in one of this rank's chunks: [B, S], dense.
  Tensor first_keys_of(int half) const {
    if (!first_keys.defined()) return {};
    const int64_t row = 2 * S(), rows = first_keys.size(0);
    Tensor keys = empty(first_keys.context(), {rows, S()}, first_keys.dtype());
    kernels::copy(keys.exec(),
                  {.x = first_keys.alias({rows, S()}, {row, 1}, half * S()), .y = keys});
    return keys;
  }
  // Block lists for the queries of a chunk that ends at `end`. Undefined without a block mask.
  BlockMask::Lists blocks_of(const Tensor& q, int64_t end) const {
    if (blocks == nullptr) return {};
    return blocks->lists(
        q.context(), {.queries = S(), .keys = end, .first_head = first_head, .heads = q.size(2)});
  }
  // View of the keys (which = 0) or values (which = 1) of one chunk in `pairs`, [2 R, B, S, 2, G,
  // D]. The chunks are stored rank by rank; `slot` is the chunk's number in this order.
  Tensor slot_of(const Tensor& pairs, const Tensor& like, int64_t slot, int which) const {
    const int64_t G = like.size(2), D = like.size(3), row = 2 * G * D;
    return pairs.alias({like.size(0), S(), G, D}, {S() * row, row, D, 1},
                       slot * like.size(0) * S() * row + which * G * D);
  }

  // Number of groups of heads. The keys and values of one group are transferred while another group
  // is computed. Heads are independent, so groups do not change bits.
  int64_t groups(const Tensor& k) const {
    const int64_t all = 2 * k.bytes() * sequence.parts().shards;
    for (int64_t some = kMostGroups; some > 1; --some) {
      if (k.size(2) % some == 0 && all / some >= kLeastGroupBytes) return some;
    }
    return 1;
  }
  // View of the heads of group `group`.
  static Tensor heads_of(const Tensor& x, int64_t group, int64_t groups) {
    const int64_t heads = x.size(2) / groups;
    return x.alias({x.size(0), x.size(1), heads, x.size(3)}, x.strides(),
                   group * heads * x.strides()[2]);
  }
  GatheredAttention of_group(int64_t group, int64_t heads) const {
    GatheredAttention op = *this;
    op.first_head += group * heads;
    return op;
  }

  // Gathers the keys and values of all tokens: begin_gather() starts the gather. in_order() puts
  // the gathered chunks, which arrive rank by rank, into token order: [B, T, 2, G, D].
  Arrival begin_gather(const Tensor& k, const Tensor& v) const;
  Tensor in_order(const Tensor& pairs, const Tensor& k) const;
  // View of the keys (which = 0) or values (which = 1) of the tokens before `end`.
  Tensor before(const Tensor& all, int64_t end, int which) const {
    const int64_t G = all.size(3), D = all.size(4), row = 2 * G * D;
    return all.alias({all.size(0), end, G, D}, {all.size(1) * row, row, D, 1}, which * G * D);
  }

  // Computes a group of heads. all: their gathered keys and values. lse: [chunks, B, H, S].
  void forward_heads(const Qkv& in, const Tensor& all, const Tensor& out, const Tensor& lse) const;
  // Computes the gradients of a group of heads: writes dq, and starts to send the gradients of keys
  // and values. Returns the pending sums of this rank's keys and values.
  Arrival backward_heads(const Qkv& in, const Tensor& all, const Tensor& out, const Tensor& lse,
                         const Tensor& dout, const Tensor& dq) const;
  Tensor lse_of(const Tensor& lse, const Tensor& q, int64_t group, int64_t groups) const;
  static Tensor lse_chunk(const Tensor& lse, int half) {
    const Shape& stride = lse.strides();
    return lse.alias({lse.size(1), lse.size(2), lse.size(3)}, {stride[1], stride[2], stride[3]},
                     half * stride[0]);
  }
  void add_pairs(const Tensor& sums, const Tensor& pairs, int64_t tokens, bool first) const;
  void scatter_pairs(const Tensor& sums, const Qkv& grads) const;
};

Arrival GatheredAttention::begin_gather(const Tensor& k, const Tensor& v) const {
  const SequenceParts parts = sequence.parts();
  const int64_t G = k.size(2), D = k.size(3), chunk = k.size(0) * S() * 2 * G * D;
  const Tensor pairs = empty(k.context(), {parts.shards, 2 * chunk}, k.dtype());
  for_chunks([&](int half, int) {
    for (const int which : {0, 1}) {
      kernels::copy(k.exec(), {.x = chunk_of(which == 0 ? k : v, half),
                               .y = slot_of(pairs, k, 2 * parts.first + half, which)});
    }
  });
  return sequence.exchange().begin_gather_parts(pairs);
}

Tensor GatheredAttention::in_order(const Tensor& pairs, const Tensor& k) const {
  const SequenceParts parts = sequence.parts();
  const int64_t G = k.size(2), D = k.size(3), chunk = k.size(0) * S() * 2 * G * D;
  const int64_t T = S() * parts.chunks(), row = 2 * G * D;
  const Tensor all = empty(k.context(), {k.size(0), T, 2, G, D}, k.dtype());
  for (int shard = 0; shard < parts.shards; ++shard) {
    for (const int half : {0, 1}) {
      const Shape shape = {k.size(0), S(), row};
      kernels::copy(
          k.exec(),
          {.x = pairs.alias(shape, {S() * row, row, 1}, (2 * shard + half) * chunk),
           .y = all.alias(shape, {T * row, row, 1}, parts.chunk(shard, half) * S() * row)});
    }
  }
  return all;
}

// View of the lse of a head group: [chunks, B, heads, S].
Tensor GatheredAttention::lse_of(const Tensor& lse, const Tensor& q, int64_t group,
                                 int64_t groups) const {
  const int64_t H = q.size(2), heads = H / groups;
  return lse.alias({lse.size(0), q.size(0), heads, S()}, {lse.size(1), H * S(), S(), 1},
                   group * heads * S());
}

void GatheredAttention::forward(const Qkv& in, const Tensor& out, const Tensor& lse) const {
  const int64_t count = groups(in.k);
  const auto begin = [&](int64_t i) {
    return begin_gather(heads_of(in.k, i, count), heads_of(in.v, i, count));
  };
  Arrival next = begin(0);
  for (int64_t i = 0; i < count; ++i) {
    const Qkv some{heads_of(in.q, i, count), heads_of(in.k, i, count), heads_of(in.v, i, count)};
    Arrival arriving = std::exchange(next, i + 1 < count ? begin(i + 1) : Arrival());
    const Tensor all = in_order(arriving.get(), some.k);
    arriving = {};
    of_group(i, some.q.size(2))
        .forward_heads(some, all, heads_of(out, i, count), lse_of(lse, in.q, i, count));
  }
}

void GatheredAttention::forward_heads(const Qkv& in, const Tensor& all, const Tensor& out,
                                      const Tensor& lse) const {
  for_chunks([&](int half, int chunk) {
    const int64_t end = (chunk + 1) * S();
    const Tensor keys = first_keys_of(half);
    const BlockMask::Lists lists = blocks_of(in.q, end);
    kernels::attention_fwd(in.q.exec(),
                           {.q = chunk_of(in.q, half),
                            .k = before(all, end, 0),
                            .v = before(all, end, 1),
                            .out = chunk_of(out, half),
                            .lse = lse_chunk(lse, half),
                            .scale = scale,
                            .causal = true,
                            .window = window,
                            .first_keys = keys.defined() ? keys.view() : View{},
                            .softcap = softcap,
                            .blocks = blocks != nullptr ? lists.views() : kernels::BlockLists{}});
  });
}

// Adds `pairs`, the key and value gradients of the first `tokens` tokens, [B, tokens, 2, G, D], to
// `sums`, [2 R, B, S, 2 G D] f32. `sums` has the chunks rank by rank. first: overwrites the sums.
void GatheredAttention::add_pairs(const Tensor& sums, const Tensor& pairs, int64_t tokens,
                                  bool first) const {
  const SequenceParts parts = sequence.parts();
  const int64_t batch = pairs.size(0), row = pairs.size(2) * pairs.size(3) * pairs.size(4);
  const int64_t run = S() * row;
  const auto vector = [](const Tensor& x, int64_t count, int64_t offset) {
    return x.alias({count}, {1}, offset);
  };
  for (int chunk = 0; chunk < parts.chunks(); ++chunk) {
    const bool is_late = chunk >= parts.shards;
    const int shard = is_late ? parts.chunks() - 1 - chunk : chunk;
    const int64_t slot = (2 * shard + (is_late ? 1 : 0)) * batch * run;
    if (chunk * S() >= tokens) {  // the queries do not attend to this chunk of keys
      if (first) kernels::fill(sums.exec(), {.y = vector(sums, batch * run, slot), .value = 0});
      continue;
    }
    for (int64_t b = 0; b < batch; ++b) {
      const Tensor to = vector(sums, run, slot + b * run);
      const Tensor from = vector(pairs, run, (b * tokens + chunk * S()) * row);
      kernels::axpby(sums.exec(),
                     {.a = first ? from : to, .b = first ? View{} : from.view(), .y = to});
    }
  }
}

// Writes `sums`, this rank's chunks of key and value gradients, [2, B, S, 2, G, D] f32, to `grads`.
void GatheredAttention::scatter_pairs(const Tensor& sums, const Qkv& grads) const {
  Tensor pairs = sums;
  if (grads.k.dtype() != sums.dtype()) {
    pairs = empty(sums.context(), sums.shape(), grads.k.dtype());
    kernels::axpby(pairs.exec(), {.a = sums, .y = pairs});
  }
  for_chunks([&](int half, int) {
    for (const int which : {0, 1}) {
      const Tensor& to = which == 0 ? grads.k : grads.v;
      kernels::copy(to.exec(), {.x = slot_of(pairs, to, half, which), .y = chunk_of(to, half)});
    }
  });
}

void GatheredAttention::backward(const Qkv& in, const Tensor& out, const Tensor& lse,
                                 const Tensor& dout, const Qkv& grads) const {
  const int64_t count = groups(in.k);
  const auto begin = [&](int64_t i) {
    return begin_gather(heads_of(in.k, i, count), heads_of(in.v, i, count));
  };
  const auto finish = [&](Arrival& sums, int64_t i) {
    scatter_pairs(sums.get(), {{}, heads_of(grads.k, i, count), heads_of(grads.v, i, count)});
  };
  Arrival next = begin(0), sums;
  for (int64_t i = 0; i < count; ++i) {
    const Qkv some{heads_of(in.q, i, count), heads_of(in.k, i, count), heads_of(in.v, i, count)};
    Arrival arriving = std::exchange(next, i + 1 < count ? begin(i + 1) : Arrival());
    const Tensor all = in_order(arriving.get(), some.k);
    arriving = {};
    Arrival leaving =
        of_group(i, some.q.size(2))
            .backward_heads(some, all, heads_of(out, i, count), lse_of(lse, in.q, i, count),
                            heads_of(dout, i, count), heads_of(grads.q, i, count));
    if (i > 0) finish(sums, i - 1);
    sums = std::move(leaving);
  }
  finish(sums, count - 1);
}

Arrival GatheredAttention::backward_heads(const Qkv& in, const Tensor& all, const Tensor& out,
                                          const Tensor& lse, const Tensor& dout,
                                          const Tensor& dq) const {
  const SequenceParts parts = sequence.parts();
  const int64_t batch = in.q.size(0), row = 2 * in.k.size(2) * in.k.size(3);
  Tensor sum;
  for_chunks([&](int half, int chunk) {
    const int64_t end = (chunk + 1) * S();
    const Tensor keys = first_keys_of(half);
    const BlockMask::Lists lists = blocks_of(in.q, end);
    const Tensor pairs =
        empty(in.k.context(), {batch, end, 2, in.k.size(2), in.k.size(3)}, in.k.dtype());
    kernels::attention_bwd(in.q.exec(),
                           {.q = chunk_of(in.q, half),
                            .k = before(all, end, 0),
                            .v = before(all, end, 1),
                            .out = chunk_of(out, half),
                            .lse = lse_chunk(lse, half),
                            .dout = chunk_of(dout, half),
                            .dq = chunk_of(dq, half),
                            .dk = before(pairs, end, 0),
                            .dv = before(pairs, end, 1),
                            .scale = scale,
                            .causal = true,
                            .window = window,
                            .first_keys = keys.defined() ? keys.view() : View{},
                            .softcap = softcap,
                            .blocks = blocks != nullptr ? lists.views() : kernels::BlockLists{}});
    const bool first = !sum.defined();
    if (first) {
      sum = empty(in.k.context(), {parts.chunks() * batch * S(), row}, DType::kF32);
    }
    add_pairs(sum, pairs, end, first);
  });
  return sequence.exchange().begin_sum_slices(sum);
}

}  // namespace

std::shared_ptr<const CutAttention> gathered_attention(const CutOptions& options) {
  return std::make_shared<GatheredAttention>(options);
}

}  // namespace shale::comm
