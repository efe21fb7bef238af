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

// Block-sparse attention pattern (arXiv:1904.10509, arXiv:2004.05150, arXiv:2007.14062). For each
// query block of a sequence it has the key blocks to which the query block attends, per head or for
// all heads. Blocks are counted from the sequence's first token, also in a call with only some of
// its queries. Causal masks, windows and documents apply in addition within these blocks.
class BlockMask {
 public:
  // Returns the key blocks to which a query block of a head attends, in ascending order. With a
  // causal mask, none may come after the query block itself.
  using KeysOfBlock = std::function<std::vector<int32_t>(int64_t head, int64_t query_block)>;
  struct Options {
    int64_t block = kernels::kAttentionBlock;  // tokens per block: a multiple of kAttentionBlock
    bool by_head = false;                      // false: all heads use head 0's pattern
    bool causal = true;                        // must equal AttentionOptions::causal
  };
  // Throws ConfigError for an unsupported block size.
  BlockMask(const Options& options, KeysOfBlock keys_of);
  // Alternative constructor. sees: returns true if the query block attends to the key block.
  using Sees = std::function<bool(int64_t head, int64_t query_block, int64_t key_block)>;
  BlockMask(const Options& options, const Sees& sees, int64_t key_blocks);

  // The pattern in device memory, as kernels read it (kernels::BlockLists): i32 tensors [P, Nq +
  // 1], [n], [P, Nk + 1] and [n], for P heads (or 1), Nq query blocks, Nk key blocks and n pairs of
  // them.
  struct Lists {
    Tensor key_begins, keys, query_begins, queries;
    kernels::BlockLists views() const { return {key_begins, keys, query_begins, queries}; }
  };
  // Sizes of an attention call with some heads of a layer. Its queries are the last `queries`
  // tokens of the `keys` tokens.
  struct Call {
    int64_t queries = 0, keys = 0;      // numbers of tokens
    int64_t first_head = 0, heads = 1;  // range of the layer's heads
  };
  // Returns the lists for a call. They are computed in host memory once per shape, and copied to
  // the device for each call. Throws ShapeError if the queries begin inside a block of
  // kAttentionBlock tokens and end in another block.
  Lists lists(Context& context, const Call& call) const;

 private:
  std::vector<int32_t> small_keys_of(int64_t head, int64_t query) const;

  Options options_;
  KeysOfBlock keys_of_;
  mutable std::mutex mutex_;
  mutable std::map<std::array<int64_t, 5>, kernels::HostBlockLists> made_;
};

}  // namespace shale
