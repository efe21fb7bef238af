#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale::tokenizer_internal {

// Byte pair encoding (Sennrich et al. 2016, arXiv:1508.07909): of the neighbours that merge, those
// of the lowest rank do, the leftmost first, until none are left.
class BpeMerger {
 public:
  // `merges` outlives the merger.
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // Appends what the symbols become. Time is n log n in their number.
  void append(std::span<const int32_t> symbols, std::vector<int32_t>& out);

 private:
  // With a scan for the lowest rank per merge: less work than a heap while symbols are few.
  void append_few(std::span<const int32_t> symbols, std::vector<int32_t>& out) const;
  void append_many(std::span<const int32_t> symbols, std::vector<int32_t>& out);
  void push(uint32_t at, int32_t left, int32_t right);

  // A symbol and its neighbours, by the place where it begins.
  struct Node {
    int32_t symbol = 0;
    uint32_t previous = 0;
    uint32_t next = 0;
    Merge merge = {};  // with the next one
  };
  const MergeTable& merges_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank << 32 | place, the lowest first; some are out of date
};

}  // namespace shale::tokenizer_internal
