#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::tokenizer_internal {

// Maximum number of token ids, far above real vocabularies. Without it, a small file could request
// gigabytes.
inline constexpr int32_t kMaxTokens = 1 << 22;

// Hash of short byte strings. An attacker can find collisions.
uint64_t hash_bytes(std::string_view bytes);

// Maps ids to the bytes of tokens, and bytes to ids. Ids may have gaps.
class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // tokens: bytes of each token, by id; empty: no token has this id. If several tokens are equal,
  // find() returns the lowest id.
  explicit Vocabulary(const std::vector<std::string>& tokens);

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }  // highest id + 1
  // Returns the id of the token with these bytes; kNone if there is none.
  int32_t find(std::string_view bytes) const { return find(bytes, hash_bytes(bytes)); }
  int32_t find(std::string_view bytes, uint64_t hash) const;
  std::string_view bytes(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(pool_).substr(begin, ends_[i] - begin);
  }

 private:
  struct Slot {
    uint32_t tag = 0;  // upper half of the hash of the token's bytes
    int32_t id = kNone;
  };
  std::string pool_;            // bytes of all tokens
  std::vector<uint64_t> ends_;  // by id: end of the token's bytes in pool_
  // hash table with open addressing; its size is a power of two, and it is at most half full
  std::vector<Slot> slots_;
};

// Result of merging two neighbouring tokens.
struct Merge {
  uint32_t rank = kNoRank;  // lower ranks merge first
  int32_t result = 0;
  static constexpr uint32_t kNoRank = 0xffff'ffff;
};

// Hash table of the pairs of tokens that can be merged.
class MergeTable {
 public:
  explicit MergeTable(size_t pairs);
  // Returns false and does nothing if the pair exists.
  bool add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = place_of(key);; ++i) {
      const Slot& slot = slots_[i & mask_];
      if (slot.key == key) return slot.merge;
      if (slot.key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  static size_t place_of(uint64_t key) {
    const uint64_t mixed = (key ^ key >> 29) * 0x9e3779b97f4a7c15;
    return mixed ^ mixed >> 32;
  }
  std::vector<Slot> slots_;  // hash table with open addressing, like that of Vocabulary
  size_t mask_;
};

}  // namespace shale::tokenizer_internal
