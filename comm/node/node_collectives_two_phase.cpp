// The algorithm "in parts" of node_collectives.h.

#include <algorithm>
#include <cstring>

#include "shale/comm/node/node_collectives.h"
#include "shale/comm/sums/combine.h"

namespace shale::comm {
namespace {

// Up to these limits of ranks and bytes "staged" is faster, because it needs fewer steps.
constexpr int kWholeChunkRanks = 4;
constexpr int64_t kWholeChunkBytes = 16 << 10;

}  // namespace

bool NodeCollectives::in_parts(const CollectiveCall& call, bool at_once) const {
  if (call.op != CollectiveOp::kAllReduceSum) return false;
  return channel_.ranks() > kWholeChunkRanks || (!at_once && call.out.bytes() > kWholeChunkBytes);
}

// In step t a rank takes the results of chunk t - 2, writes its input of chunk t to its staging
// area, and adds its own part of chunk t - 1. It writes sums over the summands, in the staging
// areas of all ranks. This is fast: a core can write quickly what it has just read, while lines
// that another core read last take three times as long. For the same reason, input for peers
// bypasses the caches.
void NodeCollectives::staged_in_parts(const CollectiveCall& call, Chunk first, bool first_is_there,
                                      bool blocking) {
  const int64_t elements = chunk_elements(call.in.dtype, slices(call));
  const int64_t chunks = (total(call) + elements - 1) / elements;
  const auto chunk = [&](int64_t i) {
    return Chunk{.offset = i * elements,
                 .count = std::min(elements, total(call) - i * elements),
                 .half = first.half ^ static_cast<int>(i & 1)};
  };
  if (!first_is_there) channel_.sync(current_, blocking);
  for (int64_t t = 1; t < chunks + 2; ++t) {
    if (t >= 2) take_parts(call, chunk(t - 2));
    if (t < chunks) {
      channel_.next_half();
      give_parts(call, chunk(t));
    }
    if (t <= chunks) {
      add_part(call, chunk(t - 1));
      channel_.sync(current_, blocking);
    }
  }
}

void NodeCollectives::give_parts(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.in.dtype;
  std::byte* const staging = channel_.staging(channel_.rank(), chunk.half);
  for (int r = 0; r < channel_.ranks(); ++r) {
    if (r == channel_.rank()) continue;
    const Range part = part_of(chunk.count, channel_.ranks(), r, dtype);
    void* const to = staging + part.begin * dtype_size(dtype);
    copy_to(exec_, at(call.in, chunk.offset + part.begin), std::span(&to, 1),
            part.count() * dtype_size(dtype), /*stream=*/true);
  }
}

void NodeCollectives::add_part(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype;
  const Range mine = part_of(chunk.count, channel_.ranks(), channel_.rank(), dtype);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int r = 0; r < channel_.ranks(); ++r) {
    std::byte* const part = r == channel_.rank()
                                ? at(call.out, chunk.offset + mine.begin)
                                : channel_.staging(r, chunk.half) + mine.begin * dtype_size(dtype);
    inputs.push_back(part);
    outputs.push_back(part);
  }
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = outputs,
                  .count = mine.count(),
                  .in_dtype = dtype,
                  .out_dtype = dtype});
}

void NodeCollectives::take_parts(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype;
  const std::byte* const staging = channel_.staging(channel_.rank(), chunk.half);
  for (int r = 0; r < channel_.ranks(); ++r) {
    if (r == channel_.rank()) continue;
    const Range part = part_of(chunk.count, channel_.ranks(), r, dtype);
    if (part.count() == 0) continue;
    std::memcpy(at(call.out, chunk.offset + part.begin), staging + part.begin * dtype_size(dtype),
                static_cast<size_t>(part.count() * dtype_size(dtype)));
  }
}

}  // namespace shale::comm
