#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/parallel/context/cut_attention.h"
#include "shale/comm/parallel/context/cut_attention_internal.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/shape.h"

// ContextKind::kUlysses: before attention, ranks exchange their own tokens of all heads for all
// tokens of their own heads; after it they exchange them back (arXiv:2309.14509). In between,
// attention() sees whole sequences. Tokens are put in order first, because the two chunks of a
// shard are not adjacent and a causal mask depends on positions.
//
// kUlyssesRing: only the ranks of a group exchange tokens for heads. Then ring attention runs over
// the groups, whose tokens stay in the order of shards.
namespace shale::comm {
namespace {

class HeadTrade {
 public:
  explicit HeadTrade(CutSequence& sequence) : sequence_(sequence) {}

  int64_t ranks() const { return exchange().ranks(); }
  int64_t rank() const { return exchange().rank(); }

  // Exchanges [n B, 2 S, H, D] of all heads for the tokens of this rank's heads, dense: [B, T, H /
  // ranks, D], or for kUlyssesRing [ranks n B, 2 S, H / ranks, D].
  std::vector<Tensor> to_heads(const std::vector<Tensor>& tokens) const;
  // Inverse of to_heads(): writes the exchanged tensors to `tokens`.
  void to_tokens(const std::vector<Tensor>& heads, const std::vector<Tensor>& tokens) const;
  // Gathers one i32 value per token, [n B, 2 S], from all ranks, in the token order of to_heads().
  Tensor all_tokens(const Tensor& of_tokens) const;

 private:
  // Copies between tensors of this rank's tokens and the tensor that is exchanged, [ranks, n B, 2
  // S, W]. One of its rows has the heads of one rank: those of the first tensor, then of the
  // second, and so on.
  enum class Way : uint8_t { kIn, kOut };
  void copy_slices(const std::vector<Tensor>& tokens, const Tensor& slices, Way way) const;
  // Copies between some columns of `shards`, [R, B, 2 S, W], and `whole`, a result of to_heads().
  // `column` is the first of these columns.
  void copy_chunks(const Tensor& shards, int64_t column, const Tensor& whole, Way way) const;
  bool is_in_order() const { return sequence_.ring() == nullptr; }
  Shape shape_of_all(const Tensor& of_tokens, int64_t heads, int64_t size) const;
  Exchange& exchange() const { return sequence_.heads_exchange(); }

  CutSequence& sequence_;
};

int64_t row_of(const std::vector<Tensor>& tensors) {
  int64_t row = 0;
  for (const Tensor& x : tensors) row += x.size(2) * x.size(3);
  return row;
}

void copy(const Tensor& x, const Tensor& y, bool reverse) {
  kernels::copy(x.exec(), {.x = reverse ? y : x, .y = reverse ? x : y});
}

void HeadTrade::copy_slices(const std::vector<Tensor>& tokens, const Tensor& slices,
                            Way way) const {
  const int64_t rows = slices.size(1), length = slices.size(2), row = slices.size(3);
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    int64_t column = 0;
    for (const Tensor& x : tokens) {
      const int64_t heads = x.size(2) / ranks(), size = x.size(3);
      const Shape shape = {rows, length, heads, size};
      copy(x.alias(shape, x.strides(), rank * heads * x.strides()[2]),
           slices.alias(shape, {length * row, row, size, 1}, rank * rows * length * row + column),
           way == Way::kOut);
      column += heads * size;
    }
  }
}

void HeadTrade::copy_chunks(const Tensor& shards, int64_t column, const Tensor& whole,
                            Way way) const {
  const SequenceParts parts = sequence_.parts();
  const int64_t S = sequence_.chunk_tokens(), B = whole.size(0), row = shards.size(-1);
  if (!is_in_order()) {
    copy(shards.alias(whole.shape(), {2 * S * row, row, whole.size(3), 1}, column), whole,
         way == Way::kOut);
    return;
  }
  const Shape shape = {B, S, whole.size(2), whole.size(3)};
  for (int shard = 0; shard < parts.shards; ++shard) {
    for (const int half : {0, 1}) {
      copy(shards.alias(shape, {2 * S * row, row, whole.size(3), 1},
                        (shard * B * 2 + half) * S * row + column),
           whole.alias(shape, whole.strides(), parts.chunk(shard, half) * S * whole.strides()[1]),
           way == Way::kOut);
    }
  }
}

Shape HeadTrade::shape_of_all(const Tensor& of_tokens, int64_t heads, int64_t size) const {
  const SequenceParts parts = sequence_.parts();
  const int64_t rows = of_tokens.size(0), length = of_tokens.size(1);
  if (!is_in_order()) return {ranks() * rows, length, heads, size};
  return {rows, parts.shards * length, heads, size};
}

std::vector<Tensor> HeadTrade::to_heads(const std::vector<Tensor>& tokens) const {
  const Tensor& first = tokens.front();
  const Shape shape = {ranks(), first.size(0), first.size(1), row_of(tokens) / ranks()};
  const Tensor slices = empty(first.context(), shape, first.dtype());
  copy_slices(tokens, slices, Way::kIn);
  const Tensor given = exchange().all_to_all(slices);
  std::vector<Tensor> all;
  int64_t column = 0;
  for (const Tensor& x : tokens) {
    const int64_t heads = x.size(2) / ranks();
    all.push_back(empty(x.context(), shape_of_all(x, heads, x.size(3)), x.dtype()));
    copy_chunks(given, column, all.back(), Way::kIn);
    column += heads * x.size(3);
  }
  return all;
}

void HeadTrade::to_tokens(const std::vector<Tensor>& heads,
                          const std::vector<Tensor>& tokens) const {
  const Tensor& first = tokens.front();
  const Shape shape = {ranks(), first.size(0), first.size(1), row_of(heads)};
  const Tensor shards = empty(first.context(), shape, first.dtype());
  int64_t column = 0;
  for (const Tensor& x : heads) {
    copy_chunks(shards, column, x, Way::kOut);
    column += x.size(2) * x.size(3);
  }
  copy_slices(tokens, exchange().all_to_all(shards), Way::kOut);
}

Tensor HeadTrade::all_tokens(const Tensor& of_tokens) const {
  const int64_t own = of_tokens.numel();
  const Tensor shards = empty(of_tokens.context(), {ranks(), own, 1}, of_tokens.dtype());
  kernels::copy(of_tokens.exec(),
                {.x = of_tokens.alias({own}, {1}), .y = shards.alias({own}, {1}, rank() * own)});
  exchange().gather_parts(shards);
  const Tensor all = empty(of_tokens.context(), shape_of_all(of_tokens, 1, 1), of_tokens.dtype());
  copy_chunks(shards, 0, all, Way::kIn);
  return all.alias({all.size(0), all.size(1)}, {all.size(1), 1});
}

AttentionOptions options_of_heads(const CutOptions& asked, const HeadTrade& trade, int64_t heads) {
  AttentionOptions options{.causal = true,
                           .scale = asked.scale,
                           .window = asked.window,
                           .softcap = asked.softcap,
                           .blocks = asked.blocks,
                           .first_head = asked.first_head + trade.rank() * heads};
  if (asked.first_keys.defined()) options.first_keys = trade.all_tokens(asked.first_keys);
  return options;
}

void check_heads(const HeadTrade& trade, const Tensor& k) {
  if (k.size(2) % trade.ranks() == 0) return;
  throw ConfigError(cat("context: ulysses splits ", k.size(2), " key heads over ", trade.ranks(),
                        " ranks, expected a number of ranks that divides the number of heads; or "
                        "use the kind ring"));
}

// Computes attention after the exchange of tokens for heads, and exchanges back. inputs: three
// tensors or one packed tensor. parts_of(inputs) returns q, k and v.
template <typename PartsOf>
Tensor redistributed(const CutOptions& asked, const std::vector<Tensor>& inputs,
                     const PartsOf& parts_of) {
  const HeadTrade trade(asked.sequence);
  const Qkv in = parts_of(inputs);
  check_heads(trade, in.k);
  std::vector<Tensor> all = trade.to_heads({in.q, in.k, in.v});
  std::vector<Tensor*> outputs;
  for (Tensor& x : all) outputs.push_back(&x);
  std::vector<Shape> shapes;
  for (const Tensor& x : inputs) shapes.push_back(x.shape());
  record("tokens to heads", inputs, outputs, [trade, parts_of, shapes](BackwardArgs& args) {
    const std::vector<Tensor> of_heads = {args.dy(0), args.dy(1), args.dy(2)};
    Grads grads;
    for (const Shape& shape : shapes) {
      grads.push_back(empty(of_heads[0].context(), shape, of_heads[0].dtype()));
    }
    const Qkv of_tokens = parts_of(grads);
    trade.to_tokens(of_heads, {of_tokens.q, of_tokens.k, of_tokens.v});
    return grads;
  });

  const AttentionOptions options = options_of_heads(asked, trade, all[0].size(2));
  CutSequence* const ring = asked.sequence.ring();
  const Tensor seen = ring != nullptr ? attention(*ring, all[0], all[1], all[2], options)
                                      : shale::attention(all[0], all[1], all[2], options);
  Tensor out = empty(in.q.context(), in.q.shape(), in.q.dtype());
  trade.to_tokens({seen}, {out});
  record("heads to tokens", {seen}, {&out},
         [trade](BackwardArgs& args) { return Grads{trade.to_heads({args.dy()}).front()}; });
  return out;
}

}  // namespace

Tensor ulysses_attention(const CutOptions& options, const Qkv& in) {
  return redistributed(options, {in.q, in.k, in.v}, [](const std::vector<Tensor>& inputs) {
    return Qkv{inputs[0], inputs[1], inputs[2]};
  });
}

Tensor packed_ulysses_attention(const CutOptions& options, const Tensor& qkv, int64_t heads) {
  const Tensor out = redistributed(options, {qkv}, [heads](const std::vector<Tensor>& inputs) {
    const auto [q, k, v] = split_qkv(inputs[0], heads);
    return Qkv{q, k, v};
  });
  return reshape(out, {qkv.size(0), qkv.size(1), qkv.size(2) / 3});
}

}  // namespace shale::comm
