#include "shale/kernels/attention_blocks.h"

#include "shale/base/error.h"

namespace shale::kernels {

HostBlockLists make_block_lists(int64_t patterns, int64_t query_blocks, int64_t key_blocks,
                                const KeysOfBlock& keys_of) {
  HostBlockLists lists{.patterns = patterns};
  std::vector<std::vector<int32_t>> queries_of(static_cast<size_t>(key_blocks));
  for (int64_t pattern = 0; pattern < patterns; ++pattern) {
    for (std::vector<int32_t>& queries : queries_of) queries.clear();
    for (int64_t query = 0; query < query_blocks; ++query) {
      lists.key_begins.push_back(static_cast<int32_t>(lists.keys.size()));
      int64_t last = -1;
      for (const int32_t key : keys_of(pattern, query)) {
        if (key <= last || key >= key_blocks) {
          throw InternalError(cat("attention: query block ", query, " lists key block ", key,
                                  " after ", last, ", expected ascending key blocks below ",
                                  key_blocks));
        }
        last = key;
        lists.keys.push_back(key);
        queries_of[static_cast<size_t>(key)].push_back(static_cast<int32_t>(query));
      }
    }
    lists.key_begins.push_back(static_cast<int32_t>(lists.keys.size()));
    for (const std::vector<int32_t>& queries : queries_of) {
      lists.query_begins.push_back(static_cast<int32_t>(lists.queries.size()));
      lists.queries.insert(lists.queries.end(), queries.begin(), queries.end());
    }
    lists.query_begins.push_back(static_cast<int32_t>(lists.queries.size()));
  }
  // data() of an empty vector may be null, so empty lists get one entry, which nobody reads.
  if (lists.keys.empty()) lists.keys.push_back(0), lists.queries.push_back(0);
  return lists;
}

}  // namespace shale::kernels
