#include "shale/runtime/data/text/tokenizer/vocabulary.h"

#include <bit>
#include <cstring>

namespace shale::tokenizer_internal {
namespace {

uint64_t load(const char* from, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Returns the size of a hash table that is at most half full with `entries` entries.
size_t slots_for(size_t entries) {
  return std::bit_ceil(2 * entries + 2);
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kFirst = 0xa0761d6478bd642f, kSecond = 0xe7037ed1a0b428db;
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = kFirst ^ left;
  for (; left > 16; left -= 16, at += 16) {
    hash = mix(load(at, 8) ^ kSecond, load(at + 8, 8) ^ hash);
  }
  // Loads the remaining bytes, at most 16, as two halves that may overlap.
  uint64_t a = 0, b = 0;
  if (left >= 8) {
    a = load(at, 8);
    b = load(at + left - 8, 8);
  } else if (left >= 4) {
    a = load(at, 4);
    b = load(at + left - 4, 4);
  } else if (left > 0) {
    a = load(at, 1) << 8 | load(at + left / 2, 1);
    b = load(at + left - 1, 1);
  }
  return mix(a ^ kSecond, b ^ hash);
}

Vocabulary::Vocabulary(const std::vector<std::string>& tokens) : slots_(slots_for(tokens.size())) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    pool_ += token;
    ends_.push_back(pool_.size());
    if (token.empty()) continue;
    const uint64_t hash = hash_bytes(token);
    if (find(token, hash) != kNone) continue;
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].id != kNone) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(id)};
  }
}

int32_t Vocabulary::find(std::string_view wanted, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.id == kNone) return kNone;
    if (slot.tag == tag && bytes(slot.id) == wanted) return slot.id;
  }
}

MergeTable::MergeTable(size_t pairs) : slots_(slots_for(pairs)), mask_(slots_.size() - 1) {}

bool MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = place_of(key) & mask_;
  for (; slots_[i].key != kFree; i = (i + 1) & mask_) {
    if (slots_[i].key == key) return false;
  }
  slots_[i] = {key, merge};
  return true;
}

}  // namespace shale::tokenizer_internal
