#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/kernels/attention.h"

namespace shale::kernels {

// The contents of BlockLists in host memory.
struct HostBlockLists {
  int64_t patterns = 1;  // P of BlockLists: 1, or the number of heads
  std::vector<int32_t> key_begins, keys, query_begins, queries;
};

// Returns the key blocks, ascending, that a query block of a pattern attends to.
using KeysOfBlock = std::function<std::vector<int32_t>(int64_t pattern, int64_t query_block)>;

// Makes the lists for `query_blocks` x `key_blocks` blocks. Throws InternalError if keys_of returns
// blocks that are not ascending or out of range.
HostBlockLists make_block_lists(int64_t patterns, int64_t query_blocks, int64_t key_blocks,
                                const KeysOfBlock& keys_of);

// Number of blocks that hold `tokens` tokens, rounded up.
inline int64_t attention_blocks(int64_t tokens) {
  return (tokens + kAttentionBlock - 1) / kAttentionBlock;
}

}  // namespace shale::kernels
