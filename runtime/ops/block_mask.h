#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "shale/kernels/attention_blocks.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Which blocks of keys each block of queries of a sequence sees, of every head or of all alike: the
// pattern of sparse attention (arXiv:1904.10509, arXiv:2004.05150, arXiv:2007.14062). Blocks are
// counted from the sequence's first token, also where a call has some of its queries alone. Inside
// the blocks that are seen, causal masks, windows and documents hide what they hide.
class BlockMask {
 public:
  // The blocks of keys that a block of queries of a head sees: ascending, none after its own if
  // causal.
  using KeysOfBlock = std::function<std::vector<int32_t>(int64_t head, int64_t query_block)>;
  struct Options {
    int64_t block = kernels::kAttentionBlock;  // tokens of a block: a multiple of that
    bool by_head = false;                      // heads differ; else they have head 0's
    bool causal = true;                        // as the attention is
  };
  // Throws ConfigError for a block of another size.
  BlockMask(const Options& options, KeysOfBlock keys_of);
  // The same of a function that says whether a block of queries sees one of keys.
  using Sees = std::function<bool(int64_t head, int64_t query_block, int64_t key_block)>;
  BlockMask(const Options& options, const Sees& sees, int64_t key_blocks);

  // What kernels walk, in a device's memory: [P, Nq + 1], [n], [P, Nk + 1], [n] i32.
  struct Lists {
    Tensor key_begins, keys, query_begins, queries;
    kernels::BlockLists views() const { return {key_begins, keys, query_begins, queries}; }
  };
  // A call of attention over some heads of a layer, whose queries are the last of its keys.
  struct Call {
    int64_t queries = 0, keys = 0;      // tokens
    int64_t first_head = 0, heads = 1;  // of the layer's
  };
  // Made once for all calls of a shape, in host memory, and copied for each. Throws ShapeError for
  // queries that begin inside a block of kAttentionBlock tokens and end in another.
  Lists lists(Context& context, const Call& call) const;

 private:
  std::vector<int32_t> small_keys_of(int64_t head, int64_t query) const;

  Options options_;
  KeysOfBlock keys_of_;
  mutable std::mutex mutex_;
  mutable std::map<std::array<int64_t, 5>, kernels::HostBlockLists> made_;
};

}  // namespace shale
