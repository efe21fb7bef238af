#pragma once

#include <memory>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/runtime/ops/attention.h"

namespace shale::comm {

struct Qkv {
  Tensor q, k, v;
};

// Checked arguments of attention over B sequences of R shards each. This process has n shards of
// each sequence. A shard has two chunks of S tokens (cut_sequence.h).
struct CutOptions {
  CutSequence& sequence;
  float scale;
  int64_t window;
  float softcap;
  Tensor first_keys;  // [n B, T / R] or undefined
  std::shared_ptr<const BlockMask> blocks;
  int64_t first_head;  // this rank's first head in the block mask

  int64_t S() const { return sequence.chunk_tokens(); }
  int64_t B(const Tensor& x) const { return x.size(0) / sequence.parts().count; }
};

// Attention of this rank's tokens, with ContextKind::kGather or kRing. All tensors are [n B, 2 S,
// heads, D]: n shards of each of B sequences, with two chunks of S tokens per shard.
class CutAttention {
 public:
  virtual ~CutAttention() = default;

  // Allocates lse (log-sum-exp). forward() writes it together with `out`; backward() reads both.
  virtual Tensor make_lse(const Tensor& q) const = 0;
  virtual void forward(const Qkv& in, const Tensor& out, const Tensor& lse) const = 0;
  // Computes the gradients of q, k and v, and writes them to `grads`.
  virtual void backward(const Qkv& in, const Tensor& out, const Tensor& lse, const Tensor& dout,
                        const Qkv& grads) const = 0;
};

std::shared_ptr<const CutAttention> gathered_attention(const CutOptions& options);
// Throws ConfigError if options have a block mask.
std::shared_ptr<const CutAttention> ring_attention(const CutOptions& options);

// Attention of kind kUlysses or kUlyssesRing, recorded by autograd. Takes three tensors [n B, 2 S,
// heads, D] or one packed tensor. Throws ConfigError unless the number of ranks divides the number
// of key heads.
Tensor ulysses_attention(const CutOptions& options, const Qkv& in);
Tensor packed_ulysses_attention(const CutOptions& options, const Tensor& qkv, int64_t heads);

}  // namespace shale::comm
