#include "shale/comm/parallel/data/replica_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/fingerprint.h"

namespace shale::comm {
namespace {

// A part of the training state that is equal on several ranks.
struct Copy {
  const Parameter* parameter;
  Tensor values;  // contiguous tensor

  bool is_repeated() const { return parameter->sharding.share == Share::kReplicate; }
  bool is_of_experts() const { return parameter->sharding.is_of_experts; }
};

// Hashes bytes. Two different inputs have equal hashes with a probability of 2^-64.
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
        copies.push_back({.parameter = parameter, .values = parameter->value});
      }
      continue;
    }
    for (const auto& buffer : unit->buffers()) {
      buffer->values().wait_for_step();
      for (const OptimSpan& span : buffer->spans()) {
        copies.push_back({.parameter = span.parameter,
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

// Returns the most frequent hash; if several are equally frequent, the lowest rank's.
uint64_t most_common(const std::vector<uint64_t>& hashes) {
  std::map<uint64_t, size_t> counts;
  for (const uint64_t hash : hashes) ++counts[hash];
  return *std::max_element(hashes.begin(), hashes.end(),
                           [&](uint64_t a, uint64_t b) { return counts[a] < counts[b]; });
}

// Compares the copies over a group. `rank`: this rank's number in error messages.
void compare(const std::vector<Copy>& copies, Context& context, ProcessGroup& group, int rank) {
  std::vector<uint64_t> mine = hashes_of(copies, context);
  mine.push_back(static_cast<uint64_t>(rank));

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
    throw CommError(
        cat("replicas differ: the copy of ", copies[i].parameter->full_name(), " on ",
            rank_list(others), " differs from that of the other ", hashes.size() - others.size(),
            hashes.size() - others.size() == 1 ? " rank" : " ranks",
            "; expected the same bits everywhere: suspect memory or a link of that host"));
  }
}

}  // namespace

bool has_replicas(const DataParallel& parallel) {
  const ShardingContext& shared = parallel.shared();
  if (shared.groups.tensor != nullptr && shared.groups.tensor->size() > 1) return true;
  if (shared.options.stage == 3) return shared.groups.replicate != nullptr;
  return !shared.single();
}

void check_replicas(DataParallel& parallel, ProcessGroup& everyone, std::optional<int> rank) {
  if (!has_replicas(parallel)) return;
  const ShardingContext& shared = parallel.shared();
  const ShardGroups& groups = shared.groups;
  const bool sharded = shared.options.stage == 3;
  const std::vector<Copy> copies = copies_of(parallel);
  const auto check = [&](const std::vector<Copy>& same, ProcessGroup* group) {
    if (group == nullptr || group->size() == 1) return;
    compare(same, parallel.shared().context(), group->host(), rank.value_or(everyone.rank()));
  };
  if (groups.tensor == nullptr && groups.experts == nullptr) {
    return check(copies, sharded ? groups.replicate : &everyone);
  }
  std::vector<Copy> of_experts, of_others, of_every_leaf;
  for (const Copy& copy : copies) {
    (copy.is_of_experts() ? of_experts : of_others).push_back(copy);
    if (copy.is_repeated()) of_every_leaf.push_back(copy);
  }
  check(of_others, sharded ? nullptr : groups.shard);
  check(of_experts, sharded ? nullptr : groups.expert_shard);
  check(copies, groups.replicate);
  check(of_every_leaf, groups.tensor);
}

}  // namespace shale::comm
