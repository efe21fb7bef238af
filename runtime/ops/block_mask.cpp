#include "shale/runtime/ops/block_mask.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/attention_blocks.h"

namespace shale {

using kernels::attention_blocks;
using kernels::kAttentionBlock;

BlockMask::BlockMask(const Options& options, KeysOfBlock keys_of)
    : options_(options), keys_of_(std::move(keys_of)) {
  if (options.block >= kAttentionBlock && options.block % kAttentionBlock == 0) return;
  throw ConfigError(cat("attention: a block has ", options.block,
                        " tokens, expected a multiple of ", kAttentionBlock));
}

BlockMask::BlockMask(const Options& options, const Sees& sees, int64_t key_blocks)
    : BlockMask(options, [sees, key_blocks, causal = options.causal](int64_t head, int64_t query) {
        std::vector<int32_t> keys;
        const int64_t end = causal ? std::min(query + 1, key_blocks) : key_blocks;
        for (int64_t key = 0; key < end; ++key) {
          if (sees(head, query, key)) keys.push_back(static_cast<int32_t>(key));
        }
        return keys;
      }) {}

// Returns the key blocks to which a query block attends, in the kernels' block size
// kAttentionBlock.
std::vector<int32_t> BlockMask::small_keys_of(int64_t head, int64_t query) const {
  const int64_t parts = options_.block / kAttentionBlock;
  std::vector<int32_t> small;
  for (const int32_t key : keys_of_(head, query / parts)) {
    for (int64_t part = key * parts; part < (key + 1) * parts; ++part) {
      if (!options_.causal || part <= query) small.push_back(static_cast<int32_t>(part));
    }
  }
  return small;
}

BlockMask::Lists BlockMask::lists(Context& context, const Call& call) const {
  const int64_t before = call.keys - call.queries, first = before / kAttentionBlock;
  const int64_t query_blocks = attention_blocks(call.queries);
  const int64_t key_blocks = attention_blocks(call.keys);
  if (before < 0 || (before % kAttentionBlock != 0 && call.queries > 0 &&
                     (call.keys - 1) / kAttentionBlock != first)) {
    throw ShapeError(cat("attention: ", call.queries, " queries of a block mask begin at token ",
                         before, ", expected a multiple of ", kAttentionBlock,
                         ", or queries in a single block"));
  }
  const int64_t patterns = options_.by_head ? call.heads : 1;
  const int64_t first_head = options_.by_head ? call.first_head : 0;
  const std::lock_guard lock(mutex_);
  kernels::HostBlockLists& host = made_[{first, query_blocks, key_blocks, first_head, patterns}];
  if (host.key_begins.empty()) {
    host = kernels::make_block_lists(
        patterns, query_blocks, key_blocks, [&](int64_t pattern, int64_t query) {
          std::vector<int32_t> keys = small_keys_of(first_head + pattern, first + query);
          std::erase_if(keys, [&](int32_t key) { return key >= key_blocks; });
          return keys;
        });
  }
  const auto table = [&](const std::vector<int32_t>& values, int64_t rows) {
    return from_host<int32_t>(context, values, {rows, std::ssize(values) / rows});
  };
  const auto flat = [&](const std::vector<int32_t>& values) {
    return from_host<int32_t>(context, values, {std::ssize(values)});
  };
  return {table(host.key_begins, patterns), flat(host.keys), table(host.query_begins, patterns),
          flat(host.queries)};
}

}  // namespace shale
