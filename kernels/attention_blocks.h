#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/kernels/attention.h"

namespace shale::kernels {

// What BlockLists point to, in host memory.
struct HostBlockLists {
  int64_t patterns = 1;  // P
  std::vector<int32_t> key_begins, keys, query_begins, queries;
};

// The blocks of keys that a block of queries of a pattern sees, ascending, below key_blocks.
using KeysOfBlock = std::function<std::vector<int32_t>(int64_t pattern, int64_t query_block)>;

// Lists for so many blocks of each side. Throws InternalError for numbers that are not ascending or
// out of range.
HostBlockLists make_block_lists(int64_t patterns, int64_t query_blocks, int64_t key_blocks,
                                const KeysOfBlock& keys_of);

// As many blocks as so many tokens begin.
inline int64_t attention_blocks(int64_t tokens) {
  return (tokens + kAttentionBlock - 1) / kAttentionBlock;
}

}  // namespace shale::kernels
