#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/context/cut_attention_internal.h"
#include "shale/kernels/attention.h"
#include "shale/kernels/elementwise.h"

// ContextKind::kRing: keys and values move around the ranks (arXiv:2310.01889), while each rank's
// queries attend to the keys that it has. A shard has one chunk from the start and one from the end
// of a sequence. The attention of one shard's queries to another shard's keys is one kernel call:
// - Keys of the same shard: a causal mask over both chunks.
// - Keys of an earlier shard: all queries attend to its first chunk. Its second chunk is later than
//   all of them.
// - Keys of a later shard: both its chunks lie between the chunks of the queries. Only the second
//   chunk of queries attends to them.
//
// The queries of shard i attend to the keys of shards i, i - 1, and so on around the ring; i + 1 is
// last. The gradients of its keys are added over the queries of shards i, i + 1, and so on. With
// one shard per rank, keys arrive in this order, so that no result waits for another. Every number
// of ranks uses the same order: bits depend neither on that number nor on the time of arrival.
//
// H is the number of query heads, G of key heads; D is the head size.
namespace shale::comm {
namespace {

// Keys and values of a rank's shards, [n B, 2 S, G, D] each.
struct Keys {
  Tensor k, v;
};

// Queries of a shard on this rank, and keys of any shard. A shard number counts all shards of a
// sequence, a slot the shards on one rank. The last fields say which rows take part.
struct Pair {
  int query_shard, key_shard;
  int64_t query_slot, key_slot;
  int64_t first_query = 0;  // index of the first query among the shard's rows
  int64_t queries = 0, keys = 0;
  kernels::TokenPlaces query_places{}, key_places{};

  // true for keys of the same shard, which need a causal mask
  bool is_own() const { return query_shard == key_shard; }
};

Tensor f32_empty(const Tensor& like, const Shape& shape) {
  return empty(like.context(), shape, DType::kF32);
}

void cast(const Tensor& from, const Tensor& to) {
  kernels::axpby(to.exec(), {.a = from, .y = to});
}

// Splits a packed tensor into keys and values.
Keys unpacked(const Tensor& both) {
  const Shape shape = {both.size(1), both.size(2), both.size(3), both.size(4)};
  const Shape strides = contiguous_strides(shape);
  return {both.alias(shape, strides), both.alias(shape, strides, both.numel() / 2)};
}

// Rounds f32 gradient sums to the dtype of `grad`, which may have any strides.
void write_grad(const Tensor& sum, const Tensor& grad) {
  Tensor rounded = sum;
  if (grad.dtype() != DType::kF32) {
    rounded = empty(sum.context(), sum.shape(), grad.dtype());
    cast(sum, rounded);
  }
  kernels::copy(grad.exec(), {.x = rounded, .y = grad});
}

Shape packed_shape(const Tensor& k) {
  return {2, k.size(0), k.size(1), k.size(2), k.size(3)};
}

Tensor packed(const Keys& keys) {
  const Tensor both = empty(keys.k.context(), packed_shape(keys.k), keys.k.dtype());
  const Keys to = unpacked(both);
  kernels::copy(both.exec(), {.x = keys.k, .y = to.k});
  kernels::copy(both.exec(), {.x = keys.v, .y = to.v});
  return both;
}

class RingAttention final : public CutAttention, private CutOptions {
 public:
  explicit RingAttention(const CutOptions& options) : CutOptions(options) {}

  Tensor make_lse(const Tensor& q) const override {
    return f32_empty(q, {q.size(0), q.size(2), q.size(1)});
  }
  void forward(const Qkv& in, const Tensor& out, const Tensor& lse) const override;
  void backward(const Qkv& in, const Tensor& out, const Tensor& lse, const Tensor& dout,
                const Qkv& grads) const override;

 private:
  // Gradient sums in backward, in f32: of queries, and of keys and values.
  struct Sums {
    Tensor q;
    Keys of_keys;
  };

  Pair make_pair(int query_shard, int key_shard) const;
  bool is_seen(const Pair& pair) const;
  // View of rows [first, first + count) of all sequences of a shard.
  Tensor rows_of(const Tensor& x, int64_t slot, int64_t first, int64_t count) const;
  Tensor queries_of(const Tensor& x, const Pair& pair) const {
    return rows_of(x, pair.query_slot, pair.first_query, pair.queries);
  }
  Tensor keys_of(const Tensor& x, const Pair& pair) const {
    return rows_of(x, pair.key_slot, 0, pair.keys);
  }
  Tensor lse_of(const Tensor& lse, const Pair& pair) const;
  Tensor first_keys_of(const Pair& pair) const;

  // Calls visit(keys, pair) for all pairs of shards, in the ring order that the comment at the top
  // of this file describes. Calls pass() each time before the keys of the next rank.
  template <typename Visit, typename Pass>
  void go_around(const Keys& own, const Visit& visit, const Pass& pass) const;
  // Visits the pairs of this rank's queries with one rank's keys. For this rank's own keys there
  // are two visits: kFirst takes key shards up to the shard of the queries, kLast the later ones.
  enum class Which : uint8_t { kAll, kFirst, kLast };
  template <typename Visit>
  void visit_rank(const Keys& keys, int rank, Which which, const Visit& visit) const;

  void add_forward(const Qkv& in, const Keys& keys, const Pair& pair, const Tensor& sum,
                   const Tensor& lse) const;
  template <typename SumsOf>
  void add_backward(const Qkv& in, const Keys& keys, const Pair& pair, const Tensor& out,
                    const Tensor& lse, const Tensor& dout, const SumsOf& sums_of) const;
  void add(const Tensor& part, const Tensor& sum, bool is_first) const;
};

Pair RingAttention::make_pair(int query_shard, int key_shard) const {
  const SequenceParts parts = sequence.parts();
  const auto places = [&](int shard) {
    return kernels::TokenPlaces{
        .run = S(), .first = {parts.chunk(shard, 0) * S(), parts.chunk(shard, 1) * S()}};
  };
  Pair pair{.query_shard = query_shard,
            .key_shard = key_shard,
            .query_slot = query_shard % parts.count,
            .key_slot = key_shard % parts.count,
            .queries = 2 * S(),
            .keys = 2 * S(),
            .query_places = places(query_shard),
            .key_places = places(key_shard)};
  if (key_shard < query_shard) pair.keys = S();
  if (key_shard > query_shard) {
    pair.first_query = pair.queries = S();
    pair.query_places.first[0] = pair.query_places.first[1];
  }
  return pair;
}

// True if the window of the first query includes the last key. Later queries see fewer keys.
bool RingAttention::is_seen(const Pair& pair) const {
  if (window == 0 || pair.is_own()) return true;
  const int64_t last_key = pair.key_places.of(pair.keys - 1);
  return last_key > pair.query_places.first[0] - window;
}

Tensor RingAttention::rows_of(const Tensor& x, int64_t slot, int64_t first, int64_t count) const {
  const Shape& stride = x.strides();
  return x.alias({B(x), count, x.size(2), x.size(3)}, stride,
                 slot * B(x) * stride[0] + first * stride[1]);
}

// View [B, H, queries] of lse [n B, H, 2 S].
Tensor RingAttention::lse_of(const Tensor& lse, const Pair& pair) const {
  const Shape& stride = lse.strides();
  return lse.alias({B(lse), lse.size(1), pair.queries}, stride,
                   pair.query_slot * B(lse) * stride[0] + pair.first_query);
}

// Returns the first keys of the pair's queries, dense; undefined if there are none.
Tensor RingAttention::first_keys_of(const Pair& pair) const {
  if (!first_keys.defined()) return {};
  const int64_t row = 2 * S(), rows = B(first_keys);
  const Tensor some = first_keys.alias({rows, pair.queries}, {row, 1},
                                       pair.query_slot * rows * row + pair.first_query);
  if (pair.queries == row) return some;
  const Tensor dense = empty(first_keys.context(), {rows, pair.queries}, first_keys.dtype());
  kernels::copy(dense.exec(), {.x = some, .y = dense});
  return dense;
}

template <typename Visit>
void RingAttention::visit_rank(const Keys& keys, int rank, Which which, const Visit& visit) const {
  const SequenceParts parts = sequence.parts();
  const int first = rank * parts.count;
  for (int query = parts.first; query < parts.first + parts.count; ++query) {
    for (int key = first + parts.count - 1; key >= first; --key) {
      const bool is_first = key <= query;
      if (which != Which::kAll && is_first != (which == Which::kFirst)) continue;
      const Pair pair = make_pair(query, key);
      if (is_seen(pair)) visit(keys, pair);
    }
  }
}

template <typename Visit, typename Pass>
void RingAttention::go_around(const Keys& own, const Visit& visit, const Pass& pass) const {
  Exchange& exchange = sequence.exchange();
  const int ranks = exchange.ranks(), me = exchange.rank();
  Arrival next;
  if (ranks > 1) next = exchange.begin_pass(packed(own));
  visit_rank(own, me, Which::kFirst, visit);
  for (int step = 1; step < ranks; ++step) {
    pass();
    const Tensor both = next.get();
    next = {};  // frees the memory of the tensor that was sent
    if (step + 1 < ranks) next = exchange.begin_pass(both);
    visit_rank(unpacked(both), (me - step + ranks) % ranks, Which::kAll, visit);
  }
  if (ranks > 1) pass();
  visit_rank(own, me, Which::kLast, visit);
}

void RingAttention::forward(const Qkv& in, const Tensor& out, const Tensor& lse) const {
  const bool is_f32 = out.dtype() == DType::kF32;
  const Tensor sum = is_f32 ? out : f32_empty(out, out.shape());
  go_around(
      {in.k, in.v},
      [&](const Keys& keys, const Pair& pair) { add_forward(in, keys, pair, sum, lse); }, [] {});
  if (!is_f32) cast(sum, out);
}

void RingAttention::add_forward(const Qkv& in, const Keys& keys, const Pair& pair,
                                const Tensor& sum, const Tensor& lse) const {
  const Tensor q = queries_of(in.q, pair), sum_rows = queries_of(sum, pair);
  const Tensor lse_rows = lse_of(lse, pair), hidden = first_keys_of(pair);
  // A shard of queries begins its sum with its own keys, so this call can write the sum itself.
  const bool is_direct = pair.is_own() && q.dtype() == DType::kF32;
  const Tensor part = is_direct ? sum_rows : empty(q.context(), q.shape(), q.dtype());
  const Tensor part_lse = pair.is_own() ? lse_rows : f32_empty(q, lse_rows.shape());
  kernels::attention_fwd(q.exec(), {.q = q,
                                    .k = keys_of(keys.k, pair),
                                    .v = keys_of(keys.v, pair),
                                    .out = part,
                                    .lse = part_lse,
                                    .scale = scale,
                                    .causal = pair.is_own(),
                                    .window = window,
                                    .first_keys = hidden.defined() ? hidden.view() : View{},
                                    .softcap = softcap,
                                    .query_places = pair.query_places,
                                    .key_places = pair.key_places});
  if (!pair.is_own()) {
    kernels::attention_merge(
        q.exec(), {.sum = sum_rows, .lse = lse_rows, .part = part, .part_lse = part_lse});
  } else if (!is_direct) {
    cast(part, sum_rows);
  }
}

void RingAttention::backward(const Qkv& in, const Tensor& out, const Tensor& lse,
                             const Tensor& dout, const Qkv& grads) const {
  Exchange& exchange = sequence.exchange();
  const Tensor dq = f32_empty(in.q, in.q.shape());
  // Gradient sums of the keys that this rank has now. They follow the keys around the ring, and
  // then one rank further, to the owner of the keys.
  Tensor of_keys = f32_empty(in.k, packed_shape(in.k));
  Arrival arriving;
  const auto arrived = [&] {
    if (arriving.defined()) of_keys = arriving.get();
    arriving = {};
    return Sums{dq, unpacked(of_keys)};
  };
  go_around(
      {in.k, in.v},
      [&](const Keys& keys, const Pair& pair) {
        add_backward(in, keys, pair, out, lse, dout, arrived);
      },
      [&] {
        arrived();
        arriving = exchange.begin_pass(of_keys);
        of_keys = {};
      });
  write_grad(dq, grads.q);
  const Keys sums = arrived().of_keys;
  write_grad(sums.k, grads.k);
  write_grad(sums.v, grads.v);
}

// Adds the gradients of a pair to the sums. Calls sums_of() as late as possible, because it waits
// for the sums of the keys, which may be in transfer.
template <typename SumsOf>
void RingAttention::add_backward(const Qkv& in, const Keys& keys, const Pair& pair,
                                 const Tensor& out, const Tensor& lse, const Tensor& dout,
                                 const SumsOf& sums_of) const {
  const Tensor q = queries_of(in.q, pair), k = keys_of(keys.k, pair), v = keys_of(keys.v, pair);
  const Tensor hidden = first_keys_of(pair);
  const auto part_of = [](const Tensor& x) { return empty(x.context(), x.shape(), x.dtype()); };
  const auto rows_in = [&](const Sums& sums) {
    return Qkv{queries_of(sums.q, pair), keys_of(sums.of_keys.k, pair),
               keys_of(sums.of_keys.v, pair)};
  };
  // The pair of a shard with itself begins every sum, so this call can write the sums themselves.
  const bool is_direct = pair.is_own() && q.dtype() == DType::kF32;
  const Qkv parts = is_direct ? rows_in(sums_of()) : Qkv{part_of(q), part_of(k), part_of(v)};
  kernels::attention_bwd(q.exec(), {.q = q,
                                    .k = k,
                                    .v = v,
                                    .out = queries_of(out, pair),
                                    .lse = lse_of(lse, pair),
                                    .dout = queries_of(dout, pair),
                                    .dq = parts.q,
                                    .dk = parts.k,
                                    .dv = parts.v,
                                    .scale = scale,
                                    .causal = pair.is_own(),
                                    .window = window,
                                    .first_keys = hidden.defined() ? hidden.view() : View{},
                                    .softcap = softcap,
                                    .query_places = pair.query_places,
                                    .key_places = pair.key_places});
  if (is_direct) return;
  const Qkv sums = rows_in(sums_of());
  add(parts.q, sums.q, pair.is_own());
  add(parts.k, sums.k, pair.is_own());
  add(parts.v, sums.v, pair.is_own());
}

// Adds `part`, dense, to `sum`, some rows of an f32 tensor. is_first: overwrites the sum.
void RingAttention::add(const Tensor& part, const Tensor& sum, bool is_first) const {
  const int64_t run = part.numel() / part.size(0);
  for (int64_t b = 0; b < part.size(0); ++b) {
    const Tensor to = sum.alias({run}, {1}, b * sum.strides()[0]);
    const Tensor from = part.alias({run}, {1}, b * run);
    kernels::axpby(to.exec(), {.a = from, .b = is_first ? View{} : to.view(), .y = to});
  }
}

}  // namespace

std::shared_ptr<const CutAttention> ring_attention(const CutOptions& options) {
  if (options.blocks != nullptr) {
    throw ConfigError(
        "context: ring attention does not support attention patterns; use the kind gather or "
        "ulysses");
  }
  return std::make_shared<RingAttention>(options);
}

}  // namespace shale::comm
