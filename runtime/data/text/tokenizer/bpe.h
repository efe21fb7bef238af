#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale::tokenizer_internal {

// Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909). Repeatedly merges the pair of
// neighbouring symbols with the lowest rank, the leftmost one if there are several, until no pair
// can be merged.
class BpeMerger {
 public:
  // `merges` must outlive the merger.
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // Merges the symbols and appends the result to `out`. Takes O(n log n) time for n symbols.
  void append(std::span<const int32_t> symbols, std::vector<int32_t>& out);

 private:
  // Does the same for few symbols. Searches all pairs for the lowest rank before each merge, which
  // is then faster than a heap.
  void append_few(std::span<const int32_t> symbols, std::vector<int32_t>& out) const;
  void append_many(std::span<const int32_t> symbols, std::vector<int32_t>& out);
  void push(uint32_t at, int32_t left, int32_t right);

  // A symbol and the indices of its neighbours. The index of a node is the position where the
  // symbol starts.
  struct Node {
    int32_t symbol = 0;
    uint32_t previous = 0;
    uint32_t next = 0;
    Merge merge = {};  // merge of this symbol with the next one
  };
  const MergeTable& merges_;
  std::vector<Node> nodes_;
  // heap of rank << 32 | position, lowest first; some entries are outdated
  std::vector<uint64_t> heap_;
};

}  // namespace shale::tokenizer_internal
