#include "shale/comm/node/node_exchange.h"

#include <algorithm>

#include "shale/comm/sums/combine.h"

namespace shale::comm {
namespace {

size_t index(int i) {
  return static_cast<size_t>(i);
}

// Number of elements of a slice of `count` elements from `first` on, at most `room`.
int64_t part_from(int64_t count, int64_t first, int64_t room) {
  return std::clamp<int64_t>(count - first, 0, room);
}

}  // namespace

NodeExchange::NodeExchange(NodeChannel& channel, SharedMemory* memory, const Exec& exec,
                           std::vector<int> group_ranks, int ranks)
    : channel_(channel),
      memory_(memory),
      exec_(exec),
      group_ranks_(std::move(group_ranks)),
      ranks_(ranks) {}

// Table of a rank: its longest slice for a rank of this node, the counts that it sends to each
// rank, and the counts that it expects from each rank.
std::span<int64_t> NodeExchange::table(int local) const {
  return {reinterpret_cast<int64_t*>(channel_.staging(local, first_half_)), index(1 + 2 * ranks_)};
}

SliceTable NodeExchange::table_of(int local) const {
  const std::span<int64_t> all = table(local).subspan(1);
  SliceTable result;
  result.in_counts.assign(all.begin(), all.begin() + ranks_);
  result.out_counts.assign(all.begin() + ranks_, all.end());
  return result;
}

int64_t NodeExchange::place_elements(DType dtype) const {
  const int64_t table_bytes = (8 * (1 + 2 * int64_t{ranks_}) + 63) / 64 * 64;
  const int64_t bytes = (channel_.staging_bytes() - table_bytes) / channel_.ranks() / 64 * 64;
  return bytes / dtype_size(dtype);
}

// Area at the end of rank `from`'s staging half for data to rank `to` of the node.
std::byte* NodeExchange::place(int from, int to, int half) const {
  const int64_t bytes = place_elements(DType::kU8);
  const int64_t first = channel_.staging_bytes() / 64 * 64 - bytes * channel_.ranks();
  return channel_.staging(from, half) + first + bytes * to;
}

void NodeExchange::begin(const CollectiveCall& call, Announcement& mine) {
  slices_ = slices_of(call, ranks_);
  first_half_ = channel_.next_half();
  const int me = channel_.rank();
  const std::span<int64_t> own = table(me);
  own[0] = 0;
  for (const int peer : group_ranks_) own[0] = std::max(own[0], slices_.in_counts[index(peer)]);
  std::copy(slices_.in_counts.begin(), slices_.in_counts.end(), own.begin() + 1);
  std::copy(slices_.out_counts.begin(), slices_.out_counts.end(), own.begin() + 1 + ranks_);

  // A short first chunk is sent together with the announcement.
  if (memory_ != nullptr && call.in.bytes() > channel_.at_once_bytes()) {
    mine.in = memory_->find(call.in.data, call.in.bytes());
  }
  mine.staged = !mine.in.shared();
  if (mine.staged) fill(call, 0, first_half_);
}

void NodeExchange::finish(const CollectiveCall& call, uint64_t sequence, const Fingerprint& print,
                          bool blocking) {
  bool all_direct = true, all_staged = true;
  int64_t slice = 0;
  for (int r = 0; r < channel_.ranks(); ++r) {
    const bool staged = channel_.of(r, sequence).staged;
    all_direct = all_direct && (!staged || longest(r) == 0);
    all_staged = all_staged && staged;
    slice = std::max(slice, longest(r));
  }
  if (all_direct) {
    direct(call, sequence);
    channel_.sync(print, blocking, /*finishing=*/true);
    return;
  }
  if (!all_staged) {
    if (!channel_.of(channel_.rank(), sequence).staged) fill(call, 0, first_half_);
    channel_.sync(print, blocking);
  }
  const int64_t step = place_elements(call.in.dtype);
  int half = first_half_;
  for (int64_t first = 0;;) {
    drain(call, first, half);
    first += step;
    if (first >= slice) return;
    half = channel_.next_half();
    fill(call, first, half);
    channel_.sync(print, blocking);
  }
}

// Each rank starts with a different peer, to spread the accesses to memory.
void NodeExchange::direct(const CollectiveCall& call, uint64_t sequence) {
  const int ranks = channel_.ranks(), me = channel_.rank();
  for (int i = 0; i < ranks; ++i) {
    const int peer = (me + i) % ranks;
    const int from = group_ranks_[index(peer)], own = group_ranks_[index(me)];
    const int64_t count = slices_.out_counts[index(from)];
    if (count == 0) continue;
    const int64_t offset = offset_of(table(peer).subspan(1), own);
    const auto* given = static_cast<const std::byte*>(memory_->map(channel_.of(peer, sequence).in));
    void* const to = at(call.out, slices_.out_offsets[index(from)]);
    copy_to(exec_, given + offset * dtype_size(call.in.dtype), std::span(&to, 1),
            count * dtype_size(call.in.dtype), call.out.bytes() >= kStreamBytes);
  }
}

// Copies elements of each slice, from `first` on, to its receiver's area in this rank's staging
// half.
void NodeExchange::fill(const CollectiveCall& call, int64_t first, int half) {
  const int64_t room = place_elements(call.in.dtype);
  for (int to = 0; to < channel_.ranks(); ++to) {
    if (to == channel_.rank()) continue;  // this rank reads its own slice from the buffer
    const int rank = group_ranks_[index(to)];
    const int64_t count = part_from(slices_.in_counts[index(rank)], first, room);
    void* const staged = place(channel_.rank(), to, half);
    copy_to(exec_, at(call.in, slices_.in_offsets[index(rank)] + first), std::span(&staged, 1),
            count * dtype_size(call.in.dtype), /*stream=*/false);
  }
}

void NodeExchange::drain(const CollectiveCall& call, int64_t first, int half) {
  const int64_t room = place_elements(call.in.dtype);
  for (int from = 0; from < channel_.ranks(); ++from) {
    const int rank = group_ranks_[index(from)];
    const int64_t count = part_from(slices_.out_counts[index(rank)], first, room);
    const void* const given = from == channel_.rank()
                                  ? at(call.in, slices_.in_offsets[index(rank)] + first)
                                  : place(from, channel_.rank(), half);
    void* const to = at(call.out, slices_.out_offsets[index(rank)] + first);
    copy_to(exec_, given, std::span(&to, 1), count * dtype_size(call.in.dtype),
            call.out.bytes() >= kStreamBytes);
  }
}

}  // namespace shale::comm
