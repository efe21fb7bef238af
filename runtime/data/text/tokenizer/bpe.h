#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale::tokenizer_internal {

// Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909): repeatedly merges the neighbouring
// pair of the lowest rank, leftmost first, until no pair can be merged.
class BpeMerger {
 public:
  // `merges` must outlive the merger.
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // Appends the symbols after all merges. Takes O(n log n) time for n symbols.
  void append(std::span<const int32_t> symbols, std::vector<int32_t>& out);

 private:
  // Scans for the lowest rank before each merge, which is faster than a heap for few symbols.
  void append_few(std::span<const int32_t> symbols, std::vector<int32_t>& out) const;
  void append_many(std::span<const int32_t> symbols, std::vector<int32_t>& out);
  void push(uint32_t at, int32_t left, int32_t right);

  // A symbol and its neighbours, indexed by its starting position.
  struct Node {
    int32_t symbol = 0;
    uint32_t previous = 0;
    uint32_t next = 0;
    Merge merge = {};  // how this symbol merges with the next one
  };
  const MergeTable& merges_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank << 32 | position, lowest first; contains outdated entries
};

}  // namespace shale::tokenizer_internal
