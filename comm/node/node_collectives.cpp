#include "shale/comm/node/node_collectives.h"

#include <algorithm>

#include "shale/comm/sums/combine.h"

namespace shale::comm {
namespace {

// Data for peers bypasses the caches from this size on. Writing cache lines of the staging area is
// slow if peers have read them last.
constexpr int64_t kGiveStreamBytes = 8 << 10;

const std::byte* shifted(const void* data, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + elements * dtype_size(dtype);
}

}  // namespace

// Number of slices, of total() elements each, in a rank's staged input.
int NodeCollectives::slices(const CollectiveCall& call) const {
  return call.op == CollectiveOp::kReduceScatterSum ? channel_.ranks() : 1;
}

int64_t NodeCollectives::total(const CollectiveCall& call) const {
  return call.count();
}

int64_t NodeCollectives::chunk_elements(DType dtype, int slice_count) const {
  const int64_t line = 64 / dtype_size(dtype);
  const int64_t elements = channel_.staging_bytes() / dtype_size(dtype) / slice_count;
  return std::max(line, elements / line * line);
}

// Fills in this rank's announcement. at_once: without its buffers' locations, which nobody needs.
Announcement& NodeCollectives::prepare(const CollectiveCall& call, uint64_t sequence,
                                       bool at_once) {
  current_ = fingerprint(call, sequence);
  Announcement& mine = channel_.mine(sequence);
  mine = {.call = current_};
  if (memory_ == nullptr || at_once) return mine;
  const bool in_place = call.out.data == call.in.data && call.out.bytes() == call.in.bytes();
  mine.in = memory_->find(call.in.data, call.in.bytes());
  mine.out = in_place ? mine.in : memory_->find(call.out.data, call.out.bytes());
  return mine;
}

std::vector<Fingerprint> NodeCollectives::announce(const CollectiveCall& call, uint64_t sequence,
                                                   bool blocking) {
  Announcement& mine = prepare(call, sequence, /*at_once=*/true);
  if (is_all_to_all(call.op)) exchange_.begin(call, mine);
  channel_.sync(current_, blocking);
  std::vector<Fingerprint> calls;
  for (int r = 0; r < channel_.ranks(); ++r) calls.push_back(channel_.of(r, sequence).call);
  return calls;
}

void NodeCollectives::run_all_to_all(const CollectiveCall& call, uint64_t sequence, bool blocking) {
  const std::vector<Fingerprint> calls = announce(call, sequence, blocking);
  uint64_t balance = 0;
  for (const Fingerprint& print : calls) {
    if (print != current_) report_disagreement(sequence);
    balance += print.balance;
  }
  if (balance != 0) {
    std::vector<SliceTable> tables;
    for (int r = 0; r < channel_.ranks(); ++r) tables.push_back(exchange_.table_of(r));
    channel_.fail(cat("group '", channel_.options().group_name, "': ranks disagree: ",
                      pair_disagreement(tables, channel_.options().world_ranks), " in ",
                      describe(current_)));
  }
  exchange_.finish(call, sequence, current_, blocking);
}

void NodeCollectives::run(const CollectiveCall& call, uint64_t sequence, bool blocking) {
  if (is_all_to_all(call.op)) return run_all_to_all(call, sequence, blocking);
  const int64_t bytes = total(call) * dtype_size(call.in.dtype) * slices(call);
  const int64_t elements = chunk_elements(call.in.dtype, slices(call));
  const bool at_once = bytes <= channel_.at_once_bytes() && total(call) <= elements;
  const bool parts = in_parts(call, at_once);
  const Chunk first{
      .offset = 0, .count = std::min(elements, total(call)), .half = channel_.next_half()};
  const auto give_first = [&] { parts ? give_parts(call, first) : fill(call, first); };
  Announcement& mine = prepare(call, sequence, at_once);
  mine.staged = at_once || !reachable(call, mine);
  if (mine.staged) give_first();
  channel_.sync(current_, blocking);

  bool agreed = true, all_staged = true;
  for (int r = 0; r < channel_.ranks(); ++r) {
    agreed = agreed && channel_.of(r, sequence).call == current_;
    all_staged = all_staged && channel_.of(r, sequence).staged;
  }
  if (!agreed) report_disagreement(sequence);
  if (!at_once && all_reachable(call, sequence)) {
    direct(call, sequence);
    channel_.sync(current_, blocking, /*finishing=*/true);
    return;
  }
  if (!all_staged && !mine.staged) give_first();
  if (parts) return staged_in_parts(call, first, all_staged, blocking);
  staged(call, first, all_staged, blocking);
}

void NodeCollectives::report_disagreement(uint64_t sequence) {
  std::vector<Fingerprint> calls;
  for (int r = 0; r < channel_.ranks(); ++r) calls.push_back(channel_.of(r, sequence).call);
  channel_.fail(cat("group '", channel_.options().group_name,
                    "': ", disagreement(calls, channel_.options().world_ranks)));
}

// ---- Direct ----

bool NodeCollectives::reachable(const CollectiveCall& call, const Announcement& rank) const {
  switch (call.op) {
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kReduceSum: return rank.out.shared();
    case CollectiveOp::kReduceScatterSum: return rank.in.shared();
    case CollectiveOp::kAllGather: return rank.in.shared() || rank.out.shared();
    case CollectiveOp::kBroadcast:
    case CollectiveOp::kGather: return rank.in.shared();
    default: return false;
  }
}

bool NodeCollectives::all_reachable(const CollectiveCall& call, uint64_t sequence) const {
  if (call.op == CollectiveOp::kBroadcast) return reachable(call, channel_.of(call.root, sequence));
  if (call.op == CollectiveOp::kGather && channel_.of(call.root, sequence).out.shared())
    return true;
  bool in = true, out = true;
  for (int r = 0; r < channel_.ranks(); ++r) {
    const Announcement& rank = channel_.of(r, sequence);
    if (!reachable(call, rank)) return false;
    in = in && rank.in.shared();
    out = out && rank.out.shared();
  }
  return call.op != CollectiveOp::kAllGather || in || out;
}

std::vector<const void*> NodeCollectives::map_all(uint64_t sequence, bool outputs) const {
  std::vector<const void*> addresses;
  for (int r = 0; r < channel_.ranks(); ++r) {
    const Announcement& peer = channel_.of(r, sequence);
    addresses.push_back(memory_->map(outputs ? peer.out : peer.in));
  }
  return addresses;
}

void NodeCollectives::direct(const CollectiveCall& call, uint64_t sequence) {
  switch (call.op) {
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kReduceSum: return direct_all_reduce(call, sequence);
    case CollectiveOp::kReduceScatterSum: return direct_reduce_scatter(call, sequence);
    case CollectiveOp::kAllGather: return direct_all_gather(call, sequence);
    case CollectiveOp::kGather: return direct_gather(call, sequence);
    default: return direct_broadcast(call, sequence);
  }
}

void NodeCollectives::direct_all_reduce(const CollectiveCall& call, uint64_t sequence) {
  const DType dtype = call.out.dtype;
  const Range mine = part_of(total(call), channel_.ranks(), channel_.rank(), dtype);
  std::vector<const void*> inputs = map_all(sequence, /*outputs=*/true);
  std::vector<void*> outputs;
  for (const void*& input : inputs) {
    input = shifted(input, mine.begin, dtype);
    outputs.push_back(const_cast<void*>(input));
  }
  if (call.op == CollectiveOp::kReduceSum) {
    outputs = {outputs[static_cast<size_t>(call.root)]};
  }
  // Does not bypass the caches: they already have all outputs, which have just been read.
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = outputs,
                  .count = mine.count(),
                  .in_dtype = dtype,
                  .out_dtype = dtype});
}

void NodeCollectives::direct_reduce_scatter(const CollectiveCall& call, uint64_t sequence) {
  const DType dtype = call.out.dtype;
  std::vector<const void*> inputs = map_all(sequence, /*outputs=*/false);
  for (const void*& input : inputs) {
    input = shifted(input, channel_.rank() * total(call), dtype);
  }
  void* const output = call.out.data;
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = std::span(&output, 1),
                  .count = total(call),
                  .in_dtype = dtype,
                  .out_dtype = dtype,
                  .stream = call.out.bytes() >= kStreamBytes});
}

// Each rank reads its own slice once and writes it to all outputs; if some outputs cannot be
// mapped, each rank reads the slices of all ranks instead.
void NodeCollectives::direct_all_gather(const CollectiveCall& call, uint64_t sequence) {
  const int64_t bytes = call.in.bytes();
  const bool stream = call.out.bytes() >= kStreamBytes;
  const int ranks = channel_.ranks(), me = channel_.rank();
  bool push = true;
  for (int r = 0; r < ranks; ++r) push = push && channel_.of(r, sequence).out.shared();
  if (push) {
    std::vector<void*> outputs;
    for (const void* peer : map_all(sequence, /*outputs=*/true)) {
      auto* slice = static_cast<std::byte*>(const_cast<void*>(peer)) + me * bytes;
      outputs.push_back(slice);
    }
    const auto own = outputs.begin() + me;
    if (at(call.out, me * call.in.numel()) == call.in.data) outputs.erase(own);
    return copy_to(exec_, call.in.data, outputs, bytes, stream);
  }
  pull_slices(call, map_all(sequence, /*outputs=*/false));
}

// Copies each rank's input to its slice of the output.
void NodeCollectives::pull_slices(const CollectiveCall& call,
                                  const std::vector<const void*>& inputs) {
  const int ranks = channel_.ranks(), me = channel_.rank();
  for (int i = 0; i < ranks; ++i) {
    const int peer = (me + i) % ranks;  // spreads the ranks' accesses over the peers' memory
    void* const slice = at(call.out, peer * call.in.numel());
    if (peer == me && slice == call.in.data) continue;
    copy_to(exec_, inputs[static_cast<size_t>(peer)], std::span(&slice, 1), call.in.bytes(),
            call.out.bytes() >= kStreamBytes);
  }
}

// Each rank writes its slice to the root; if the root's output cannot be mapped, the root reads the
// slices.
void NodeCollectives::direct_gather(const CollectiveCall& call, uint64_t sequence) {
  const int64_t bytes = call.in.bytes();
  const bool stream = bytes * channel_.ranks() >= kStreamBytes;
  const Announcement& root = channel_.of(call.root, sequence);
  if (root.out.shared()) {
    auto* const out = static_cast<std::byte*>(memory_->map(root.out));
    void* const slice = out + channel_.rank() * bytes;
    if (slice == call.in.data) return;
    return copy_to(exec_, call.in.data, std::span(&slice, 1), bytes, stream);
  }
  if (channel_.rank() == call.root) pull_slices(call, map_all(sequence, /*outputs=*/false));
}

// Each rank copies a part of the root's buffer to all other ranks, so that the root works too; if
// some buffers cannot be mapped, each other rank reads the whole buffer.
void NodeCollectives::direct_broadcast(const CollectiveCall& call, uint64_t sequence) {
  const bool stream = call.out.bytes() >= kStreamBytes;
  const int ranks = channel_.ranks();
  bool push = true;
  for (int r = 0; r < ranks; ++r) push = push && channel_.of(r, sequence).out.shared();
  const auto* root =
      static_cast<const std::byte*>(memory_->map(channel_.of(call.root, sequence).in));
  if (push) {
    const Range mine = part_of(call.out.bytes(), ranks, channel_.rank(), DType::kU8);
    std::vector<void*> outputs;
    for (const void* peer : map_all(sequence, /*outputs=*/true)) {
      if (peer == root) continue;
      outputs.push_back(static_cast<std::byte*>(const_cast<void*>(peer)) + mine.begin);
    }
    return copy_to(exec_, root + mine.begin, outputs, mine.count(), stream);
  }
  if (channel_.rank() == call.root) return;
  void* const output = call.out.data;
  copy_to(exec_, root, std::span(&output, 1), call.out.bytes(), stream);
}

// ---- Staged ----

void NodeCollectives::staged(const CollectiveCall& call, Chunk chunk, bool first_is_there,
                             bool blocking) {
  const int64_t elements = chunk_elements(call.in.dtype, slices(call));
  if (!first_is_there) channel_.sync(current_, blocking);
  for (;;) {
    drain(call, chunk);
    chunk.offset += elements;
    if (chunk.offset >= total(call)) break;
    chunk.count = std::min(elements, total(call) - chunk.offset);
    chunk.half = channel_.next_half();
    fill(call, chunk);
    channel_.sync(current_, blocking);
  }
  // No sync at the end: peers may still read this rank's staging area, but not its buffer.
}

void NodeCollectives::fill(const CollectiveCall& call, const Chunk& chunk) {
  const int64_t size = dtype_size(call.in.dtype);
  std::byte* const to = channel_.staging(channel_.rank(), chunk.half);
  if (call.op == CollectiveOp::kBarrier) return;
  if (call.op == CollectiveOp::kBroadcast && channel_.rank() != call.root) return;
  for (int slice = 0; slice < slices(call); ++slice) {
    const bool own = slices(call) > 1 && slice == channel_.rank();
    if (own) continue;  // this rank reads its own slice from its buffer
    void* const slot = to + slice * chunk.count * size;
    copy_to(exec_, at(call.in, slice * total(call) + chunk.offset), std::span(&slot, 1),
            chunk.count * size, chunk.count * size >= kGiveStreamBytes);
  }
}

void NodeCollectives::drain(const CollectiveCall& call, const Chunk& chunk) {
  switch (call.op) {
    case CollectiveOp::kBarrier: return;
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kAllReduceMax:
    case CollectiveOp::kReduceScatterSum: return drain_reduce(call, chunk);
    case CollectiveOp::kReduceSum:
      if (channel_.rank() == call.root) drain_reduce(call, chunk);
      return;
    case CollectiveOp::kAllToAll:
    case CollectiveOp::kAllToAllV: return;  // see run_all_to_all()
    case CollectiveOp::kAllGather: return drain_all_gather(call, chunk);
    case CollectiveOp::kGather:
      if (channel_.rank() == call.root) drain_all_gather(call, chunk);
      return;
    case CollectiveOp::kBroadcast: break;
  }
  if (channel_.rank() == call.root) return;
  void* const output = at(call.out, chunk.offset);
  copy_to(exec_, channel_.staging(call.root, chunk.half), std::span(&output, 1),
          chunk.count * dtype_size(call.out.dtype), call.out.bytes() >= kStreamBytes);
}

void NodeCollectives::drain_reduce(const CollectiveCall& call, const Chunk& chunk) {
  const DType dtype = call.out.dtype;
  const int64_t slice = slices(call) > 1 ? channel_.rank() : 0;
  std::vector<const void*> inputs;
  for (int r = 0; r < channel_.ranks(); ++r) {
    // Read this rank's own data from its buffer, not from its staging area.
    inputs.push_back(r == channel_.rank()
                         ? at(call.in, slice * total(call) + chunk.offset)
                         : shifted(channel_.staging(r, chunk.half), slice * chunk.count, dtype));
  }
  void* const output = at(call.out, chunk.offset);
  // If the output is the input, the caches already have it, and bypassing them would be slower.
  const bool in_place = call.in.data == call.out.data;
  combine(exec_, {.op = call.op,
                  .inputs = inputs,
                  .outputs = std::span(&output, 1),
                  .count = chunk.count,
                  .in_dtype = dtype,
                  .out_dtype = dtype,
                  .stream = !in_place && call.out.bytes() >= kStreamBytes});
}

void NodeCollectives::drain_all_gather(const CollectiveCall& call, const Chunk& chunk) {
  for (int r = 0; r < channel_.ranks(); ++r) {
    const void* const from =
        r == channel_.rank() ? at(call.in, chunk.offset) : channel_.staging(r, chunk.half);
    void* const output = at(call.out, r * total(call) + chunk.offset);
    if (output == from) continue;
    copy_to(exec_, from, std::span(&output, 1), chunk.count * dtype_size(call.in.dtype),
            call.out.bytes() >= kStreamBytes);
  }
}

}  // namespace shale::comm
