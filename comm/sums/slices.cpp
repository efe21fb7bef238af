#include "shale/comm/sums/slices.h"

#include <numeric>

#include "shale/base/error.h"
#include "shale/comm/traffic.h"

namespace shale::comm {
namespace {

// Hash of a pair and its count, mixed over 64 bits (the finalizer of MurmurHash3).
uint64_t mixed(int from, int to, int64_t count) {
  const auto pair = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to);
  uint64_t x = pair * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(count);
  for (int i = 0; i < 2; ++i) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53u;
    x ^= x >> 33;
    x += pair;
  }
  return x;
}

std::vector<int64_t> offsets_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), int64_t{0});
  return offsets;
}

}  // namespace

SliceTable slices_of(const CollectiveCall& call, int ranks) {
  SliceTable table{.in_counts = call.in_counts, .out_counts = call.out_counts};
  if (call.op == CollectiveOp::kAllToAll) {
    table.in_counts.assign(static_cast<size_t>(ranks), call.in.numel() / ranks);
    table.out_counts = table.in_counts;
  }
  table.in_offsets = offsets_of(table.in_counts);
  table.out_offsets = offsets_of(table.out_counts);
  return table;
}

namespace {

// Bytes of all slices except the rank's own.
double bytes_of_others(const View& all, const std::vector<int64_t>& counts, int rank) {
  const int64_t own = counts[static_cast<size_t>(rank)];
  return static_cast<double>((all.numel() - own) * dtype_size(all.dtype));
}

}  // namespace

double sent_bytes(const CollectiveCall& call, int rank, int ranks) {
  if (call.op != CollectiveOp::kAllToAllV) return ring_bytes(call, ranks);
  return bytes_of_others(call.in, call.in_counts, rank);
}

double received_bytes(const CollectiveCall& all_to_all_v, int rank) {
  return bytes_of_others(all_to_all_v.out, all_to_all_v.out_counts, rank);
}

int64_t offset_of(std::span<const int64_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

uint64_t pair_balance(int rank, std::span<const int64_t> in_counts,
                      std::span<const int64_t> out_counts) {
  uint64_t balance = 0;
  for (int other = 0; other < static_cast<int>(in_counts.size()); ++other) {
    balance += mixed(rank, other, in_counts[static_cast<size_t>(other)]);
    balance -= mixed(other, rank, out_counts[static_cast<size_t>(other)]);
  }
  return balance;
}

std::string pair_disagreement(std::span<const SliceTable> ranks, std::span<const int> world_ranks) {
  for (size_t from = 0; from < ranks.size(); ++from) {
    for (size_t to = 0; to < ranks.size(); ++to) {
      const int64_t given = ranks[from].in_counts[to], expected = ranks[to].out_counts[from];
      if (given == expected) continue;
      return cat("rank ", world_ranks[from], " to rank ", world_ranks[to], ": ", given,
                 given == 1 ? " element" : " elements", ", rank ", world_ranks[to], " expects ",
                 expected);
    }
  }
  return {};
}

}  // namespace shale::comm
