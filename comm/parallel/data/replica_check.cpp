#include "shale/comm/parallel/data/replica_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/fingerprint.h"

namespace shale::comm {
namespace {

// A part of the state of which peers hold copies.
struct Copy {
  std::string name;
  Tensor values;  // contiguous
};

// Any bit that differs gives another hash, but for one case in 2^64.
uint64_t hash_bytes(const std::byte* bytes, size_t count) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t hash = count;
  const auto add = [&](uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
  };
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= count; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof word);
    add(word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes + i, count - i);
  add(rest);
  return hash;
}

std::vector<Copy> copies_of(DataParallel& parallel) {
  std::vector<Copy> copies;
  const bool sharded = parallel.shared().options.stage == 3;
  if (!sharded) parallel.unshard();
  for (const auto& unit : parallel.units()) {
    if (!sharded) {
      for (const Parameter* parameter : unit->parameters()) {
        copies.push_back({.name = parameter->full_name(), .values = parameter->value});
      }
      continue;
    }
    for (const auto& buffer : unit->buffers()) {
      buffer->wait_for_step();
      for (const OptimSpan& span : buffer->spans()) {
        copies.push_back({.name = span.parameter->full_name(),
                          .values = vector_slice(buffer->master(), span.offset, span.count)});
      }
    }
  }
  return copies;
}

std::vector<uint64_t> hashes_of(const std::vector<Copy>& copies, Context& context) {
  std::vector<uint64_t> hashes;
  std::vector<std::byte> host;
  for (const Copy& copy : copies) {
    const auto bytes = copy.values.bytes();
    host.resize(static_cast<size_t>(bytes));
    context.copy(host.data(), copy.values.data(), bytes);
    context.synchronize();
    hashes.push_back(hash_bytes(host.data(), host.size()));
  }
  return hashes;
}

// What most ranks have; of equally many, what the lowest rank has.
uint64_t most_common(const std::vector<uint64_t>& hashes) {
  std::map<uint64_t, size_t> counts;
  for (const uint64_t hash : hashes) ++counts[hash];
  return *std::max_element(hashes.begin(), hashes.end(),
                           [&](uint64_t a, uint64_t b) { return counts[a] < counts[b]; });
}

}  // namespace

bool has_replicas(const DataParallel& parallel) {
  const ShardingContext& shared = parallel.shared();
  if (shared.options.stage == 3) return shared.groups.replicate != nullptr;
  return !shared.single();
}

void check_replicas(DataParallel& parallel, ProcessGroup& everyone, std::optional<int> rank) {
  if (!has_replicas(parallel)) return;
  const bool sharded = parallel.shared().options.stage == 3;
  ProcessGroup& group = (sharded ? *parallel.shared().groups.replicate : everyone).host();
  const std::vector<Copy> copies = copies_of(parallel);
  std::vector<uint64_t> mine = hashes_of(copies, parallel.shared().context);
  mine.push_back(static_cast<uint64_t>(rank.value_or(everyone.rank())));  // for the message

  const auto width = static_cast<int64_t>(mine.size());
  std::vector<uint64_t> all(mine.size() * static_cast<size_t>(group.size()));
  const auto as_view = [](std::vector<uint64_t>& words, int64_t count) {
    return make_view(reinterpret_cast<int64_t*>(words.data()), {count});
  };
  group.all_gather(as_view(mine, width), as_view(all, width * group.size()),
                   {.tag = "replica check"});

  for (size_t i = 0; i < copies.size(); ++i) {
    std::vector<uint64_t> hashes;
    for (size_t row = i; row < all.size(); row += mine.size()) hashes.push_back(all[row]);
    const uint64_t usual = most_common(hashes);
    std::vector<int> others;
    for (size_t r = 0; r < hashes.size(); ++r) {
      if (hashes[r] == usual) continue;
      others.push_back(static_cast<int>(all[(r + 1) * mine.size() - 1]));
    }
    if (others.empty()) continue;
    throw CommError(cat("replicas differ: the copy of ", copies[i].name, " on ", rank_list(others),
                        " is not that of the other ", hashes.size() - others.size(),
                        hashes.size() - others.size() == 1 ? " rank" : " ranks",
                        "; want the same bits everywhere: suspect memory or a link of that host"));
  }
}

}  // namespace shale::comm
