// The way "copied" of node_collectives.h: direct, with the kernel's help.

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/combine.h"
#include "comm/node_collectives.h"
#include "comm/peer_copy.h"

namespace shale::comm {
namespace {

// What is fetched before it is added stays in the second-level cache.
constexpr int64_t kScratchBytes = 256 << 10;

}  // namespace

void NodeCollectives::copied(const CollectiveCall& call, uint64_t sequence) {
  switch (call.op) {
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kReduceScatterSum: return copied_reduce(call, sequence);
    case CollectiveOp::kAllGather: return copied_all_gather(call, sequence);
    default: return copied_broadcast(call, sequence);
  }
}

void NodeCollectives::fetch(int peer, uint64_t address, void* to, int64_t bytes) {
  if (copy_from_peer(channel_.of(peer, current_.sequence).pid, address, to, bytes)) return;
  channel_.fail(cat("cannot read memory of rank ", world_rank(peer), " in ", describe(current_),
                    ": ", std::strerror(errno)));
}

void NodeCollectives::deliver(int peer, uint64_t address, const void* from, int64_t bytes) {
  if (copy_to_peer(channel_.of(peer, current_.sequence).pid, address, from, bytes)) return;
  channel_.fail(cat("cannot write memory of rank ", world_rank(peer), " in ", describe(current_),
                    ": ", std::strerror(errno)));
}

// Rank r adds slice r, piece by piece; in an all-reduce it writes the sums to all peers, whose
// slice r nobody else touches.
void NodeCollectives::copied_reduce(const CollectiveCall& call, uint64_t sequence) {
  const bool scatter = call.op == CollectiveOp::kReduceScatterSum;
  const DType dtype = call.out.dtype;
  const int64_t size = dtype_size(dtype);
  const int ranks = channel_.ranks(), me = channel_.rank();
  const int64_t count = call.out.numel();
  const Range mine =
      scatter ? Range{me * count, (me + 1) * count} : part_of(count, ranks, me, dtype);
  const int64_t step = kScratchBytes / ranks / 64 * 64 / size;
  scratch_.resize(static_cast<size_t>(step * size * ranks));

  for (int64_t begin = mine.begin; begin < mine.end; begin += step) {
    const int64_t piece = std::min(step, mine.end - begin);
    const auto offset = static_cast<uint64_t>(begin * size);
    std::vector<const void*> inputs;
    for (int r = 0; r < ranks; ++r) {
      if (r == me) {
        inputs.push_back(static_cast<std::byte*>(call.in.data) + begin * size);
        continue;
      }
      inputs.push_back(scratch_.data() + step * size * r);
      fetch(r, channel_.of(r, sequence).in_address + offset, scratch_.data() + step * size * r,
            piece * size);
    }
    void* const output =
        static_cast<std::byte*>(call.out.data) + (scatter ? begin - mine.begin : begin) * size;
    combine(exec_, {.op = call.op,
                    .inputs = inputs,
                    .outputs = std::span(&output, 1),
                    .count = piece,
                    .in_dtype = dtype,
                    .out_dtype = dtype});
    if (scatter) continue;
    for (int i = 1; i < ranks; ++i) {
      const int peer = (me + i) % ranks;
      deliver(peer, channel_.of(peer, sequence).out_address + offset, output, piece * size);
    }
  }
}

void NodeCollectives::copied_all_gather(const CollectiveCall& call, uint64_t sequence) {
  const int64_t bytes = call.in.bytes();
  const int ranks = channel_.ranks();
  auto* const out = static_cast<std::byte*>(call.out.data);
  for (int i = 0; i < ranks; ++i) {
    const int peer = (channel_.rank() + i) % ranks;
    void* const slice = out + peer * bytes;
    if (peer != channel_.rank()) {
      fetch(peer, channel_.of(peer, sequence).in_address, slice, bytes);
    } else if (slice != call.in.data) {
      copy_to(exec_, call.in.data, std::span(&slice, 1), bytes, call.out.bytes() >= kStreamBytes);
    }
  }
}

// The root delivers a part to every rank, which fetches the rest: all have the same work.
void NodeCollectives::copied_broadcast(const CollectiveCall& call, uint64_t sequence) {
  const int ranks = channel_.ranks();
  const int64_t delivered = part_of(call.out.bytes(), ranks, 0, DType::kU8).count();
  if (channel_.rank() != call.root) {
    const auto rest = static_cast<uint64_t>(delivered);
    fetch(call.root, channel_.of(call.root, sequence).in_address + rest,
          static_cast<std::byte*>(call.out.data) + delivered, call.out.bytes() - delivered);
    return;
  }
  for (int i = 1; i < ranks; ++i) {
    const int peer = (channel_.rank() + i) % ranks;
    deliver(peer, channel_.of(peer, sequence).out_address, call.out.data, delivered);
  }
}

}  // namespace shale::comm
