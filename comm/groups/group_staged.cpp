#include "shale/comm/groups/group_staged.h"

#include <algorithm>
#include <array>
#include <exception>

#include "shale/comm/link/device_resources.h"
#include "shale/comm/link/staged_link.h"
#include "shale/comm/sums/slices.h"
#include "shale/comm/work_state.h"

namespace shale::comm {
namespace {

// Length of a staging buffer as a multiple of GroupOptions::staging_bytes. It is large, because
// short device copies are slow.
constexpr int64_t kStagingFactor = 8;

// Number of staging buffers. While the ranks combine one chunk, the next one is copied to the host
// and the previous one back. With three buffers neither direction waits for the other.
constexpr size_t kSlots = 3;

// A queued collective. wait() makes the stream wait for the last copies to the device.
class StagedWork final : public WorkState {
 public:
  // finished: set when the collective has left the queue.
  StagedWork(CommQueue& queue, Work queued, std::shared_ptr<const DeviceEvent> finished,
             void* stream)
      : queue_(queue),
        queued_(std::move(queued)),
        finished_(std::move(finished)),
        stream_(stream) {}

  bool done() const override { return queued_.done(); }
  void wait() override {
    queued_.wait();
    finished_->hold(stream_);
  }
  void hold(void* stream) override { finished_->hold(stream); }
  void give_up() override { queue_.cancel(); }

 private:
  CommQueue& queue_;  // outlives the work queued in it
  Work queued_;
  std::shared_ptr<const DeviceEvent> finished_;
  void* stream_;
};

}  // namespace

// Ring of staging buffers, with the streams that fill and empty them. Jobs of the queue use it one
// at a time.
class StagedGroup::Staging {
 public:
  Staging(HostGroup& host, DeviceBackend& device)
      : host_(host),
        device_(device),
        slot_bytes_(
            std::max(kStagingFactor * host.options().staging_bytes, int64_t{256} * host.size())),
        slots_{Slot(host, device, slot_bytes_), Slot(host, device, slot_bytes_),
               Slot(host, device, slot_bytes_)},
        down_(device),
        up_(device) {}
  // Waits for the copies: some may still be running, especially after a failure.
  ~Staging() { wait_for_copies(); }

  // `ready`: event that the caller's stream reaches when the input is ready. Returns an event after
  // the last copy to `call.out`.
  DeviceEvent transfer(const CollectiveCall& call, const DeviceEvent& ready, bool blocking);

 private:
  struct Slot {
    Slot(HostGroup& host, DeviceBackend& device, int64_t bytes)
        : buffer(host.memory(), device, static_cast<size_t>(bytes)) {}
    PinnedBuffer buffer;
    DeviceEvent fetched;
    DeviceEvent delivered;
  };
  // Elements [offset, offset + count) of every slice, in a slot that stores them slice after slice.
  struct Chunk {
    int64_t offset = 0;
    int64_t count = 0;
    Slot* slot = nullptr;
  };

  // Runs an all-to-all. A slot then has two areas: the input, slice after slice, and the output.
  DeviceEvent all_to_all(const CollectiveCall& call, const DeviceEvent& ready, bool blocking);
  int64_t longest_slice(const CollectiveCall& call, const SliceTable& slices, bool blocking);
  CollectiveCall fetch_slices(const CollectiveCall& call, const SliceTable& slices, int64_t first,
                              int64_t step, Slot& slot);
  void deliver_slices(const CollectiveCall& call, const SliceTable& slices, int64_t first,
                      const CollectiveCall& staged, Slot& slot);

  bool sliced(const CollectiveCall& call) const {
    return call.op == CollectiveOp::kReduceScatterSum || gathers(call.op);
  }
  static bool gathers(CollectiveOp op) {
    return op == CollectiveOp::kAllGather || op == CollectiveOp::kGather;
  }
  // True if this rank sends, but receives nothing.
  bool only_gives(const CollectiveCall& call) const {
    return is_to_root(call.op) && call.root != host_.rank();
  }
  Slot* slot_after(const Slot* slot) {
    return &slots_[static_cast<size_t>(slot - slots_.data() + 1) % kSlots];
  }
  View staged(const Chunk& chunk, DType dtype, int slice, int slices) const;
  void fetch(const CollectiveCall& call, const Chunk& chunk);
  CollectiveCall on_host(const CollectiveCall& call, const Chunk& chunk) const;
  void deliver(const CollectiveCall& call, const Chunk& chunk);
  void copy(const View& from, const View& to, void* stream) {
    device_.copy(to.data, from.data, static_cast<size_t>(from.bytes()), stream);
  }
  void wait_for_copies() noexcept;

  HostGroup& host_;
  DeviceBackend& device_;
  int64_t slot_bytes_;
  std::array<Slot, kSlots> slots_;
  DeviceStream down_;  // copies to the host
  DeviceStream up_;    // copies to the device
};

void StagedGroup::Staging::wait_for_copies() noexcept {
  try {
    device_.synchronize(down_.get());
    device_.synchronize(up_.get());
  } catch (const std::exception&) {
    // The error of a failed device has already been reported, and no copies run on it.
  }
}

DeviceEvent StagedGroup::Staging::transfer(const CollectiveCall& call, const DeviceEvent& ready,
                                           bool blocking) {
  if (is_all_to_all(call.op)) return all_to_all(call, ready, blocking);
  const int64_t total = call.count();
  const int64_t slices = sliced(call) ? host_.size() : 1;
  const int64_t line = 64 / dtype_size(call.in.dtype);
  const int64_t room = slot_bytes_ / dtype_size(call.in.dtype) / slices;
  const int64_t step = std::max(line, room / line * line);

  ready.hold(down_.get());
  if (call.after != nullptr) call.after->hold(down_.get());
  // The input of this call may be the output of an earlier one. Wait for the copies of earlier
  // calls to the device before copying to the host.
  for (const Slot& slot : slots_) slot.delivered.hold(down_.get());
  Chunk next{.offset = 0, .count = std::min(step, total), .slot = slots_.data()};
  fetch(call, next);
  for (bool last = false; !last;) {
    const Chunk chunk = next;
    last = chunk.offset + chunk.count == total;
    if (!last) {
      next.offset += step;
      next.count = std::min(step, total - next.offset);
      next.slot = slot_after(chunk.slot);
      fetch(call, next);
    }
    chunk.slot->fetched.wait();
    host_.execute(on_host(call, chunk), blocking);
    deliver(call, chunk);
  }
  return DeviceEvent(device_, up_.get());
}

View StagedGroup::Staging::staged(const Chunk& chunk, DType dtype, int slice, int slices) const {
  const int64_t first = slice * chunk.count * dtype_size(dtype);
  return make_view(chunk.slot->buffer.data() + first, dtype, {slices * chunk.count});
}

void StagedGroup::Staging::fetch(const CollectiveCall& call, const Chunk& chunk) {
  void* const stream = down_.get();
  chunk.slot->delivered.hold(stream);
  const DType dtype = call.in.dtype;
  if (call.op == CollectiveOp::kReduceScatterSum) {
    for (int slice = 0; slice < host_.size(); ++slice) {
      copy(call.in.flat(slice * call.out.numel() + chunk.offset, chunk.count),
           staged(chunk, dtype, slice, 1), stream);
    }
  } else if (call.op != CollectiveOp::kBroadcast || call.root == host_.rank()) {
    const int slice = gathers(call.op) ? host_.rank() : 0;
    copy(call.in.flat(chunk.offset, chunk.count), staged(chunk, dtype, slice, 1), stream);
  }
  chunk.slot->fetched = DeviceEvent(device_, stream);
}

CollectiveCall StagedGroup::Staging::on_host(const CollectiveCall& call, const Chunk& chunk) const {
  CollectiveCall result = call;
  result.stream = nullptr;
  const View whole = staged(chunk, call.in.dtype, 0, sliced(call) ? host_.size() : 1);
  const View own = staged(chunk, call.in.dtype, sliced(call) ? host_.rank() : 0, 1);
  result.in = gathers(call.op) ? own : whole;
  result.out = call.op == CollectiveOp::kReduceScatterSum ? own : whole;
  if (gathers(call.op) && only_gives(call)) result.out = own.flat(0, 0);
  return result;
}

void StagedGroup::Staging::deliver(const CollectiveCall& call, const Chunk& chunk) {
  void* const stream = up_.get();
  const DType dtype = call.out.dtype;
  if (only_gives(call)) {
    // This rank receives nothing, so nothing is copied to the device.
  } else if (gathers(call.op)) {
    for (int slice = 0; slice < host_.size(); ++slice) {
      copy(staged(chunk, dtype, slice, 1),
           call.out.flat(slice * call.in.numel() + chunk.offset, chunk.count), stream);
    }
  } else if (call.op != CollectiveOp::kBroadcast || call.root != host_.rank()) {
    const int slice = call.op == CollectiveOp::kReduceScatterSum ? host_.rank() : 0;
    copy(staged(chunk, dtype, slice, 1), call.out.flat(chunk.offset, chunk.count), stream);
  }
  chunk.slot->delivered = DeviceEvent(device_, stream);
}

// ---- All-to-all ----

DeviceEvent StagedGroup::Staging::all_to_all(const CollectiveCall& call, const DeviceEvent& ready,
                                             bool blocking) {
  const SliceTable slices = slices_of(call, host_.size());
  const int64_t longest = longest_slice(call, slices, blocking);
  const int64_t line = 64 / dtype_size(call.in.dtype);
  const int64_t room = slot_bytes_ / 2 / dtype_size(call.in.dtype) / host_.size();
  const int64_t step = std::max(line, room / line * line);

  ready.hold(down_.get());
  if (call.after != nullptr) call.after->hold(down_.get());
  for (const Slot& slot : slots_) slot.delivered.hold(down_.get());
  Slot* slot = slots_.data();
  CollectiveCall next = fetch_slices(call, slices, 0, step, *slot);
  for (int64_t first = 0;; slot = slot_after(slot)) {
    const CollectiveCall chunk = std::move(next);
    const bool last = first + step >= longest;
    if (!last) next = fetch_slices(call, slices, first + step, step, *slot_after(slot));
    slot->fetched.wait();
    host_.execute(chunk, blocking);
    deliver_slices(call, slices, first, chunk, *slot);
    if (last) return DeviceEvent(device_, up_.get());
    first += step;
  }
}

// Returns the length of the longest slice of all ranks, so that all use equally many chunks.
int64_t StagedGroup::Staging::longest_slice(const CollectiveCall& call, const SliceTable& slices,
                                            bool blocking) {
  int64_t longest = *std::max_element(slices.in_counts.begin(), slices.in_counts.end());
  if (call.op == CollectiveOp::kAllToAll) return longest;
  const View view = make_view(&longest, {1});
  host_.execute({.op = CollectiveOp::kAllReduceMax, .in = view, .out = view, .tag = call.tag},
                blocking);
  return longest;
}

// Starts to copy elements [first, first + step) of every slice to the slot. Returns the call with
// which the host group exchanges these elements.
CollectiveCall StagedGroup::Staging::fetch_slices(const CollectiveCall& call,
                                                  const SliceTable& slices, int64_t first,
                                                  int64_t step, Slot& slot) {
  slot.delivered.hold(down_.get());
  const auto part = [&](int64_t count) { return std::clamp<int64_t>(count - first, 0, step); };
  CollectiveCall result{.op = CollectiveOp::kAllToAllV, .tag = call.tag, .traffic = call.traffic};
  int64_t given = 0, received = 0;
  std::byte* const out = slot.buffer.data() + slot_bytes_ / 2 / 64 * 64;
  for (size_t r = 0; r < slices.in_counts.size(); ++r) {
    const int64_t count = part(slices.in_counts[r]);
    std::byte* const to = slot.buffer.data() + given * dtype_size(call.in.dtype);
    if (count > 0) {
      copy(call.in.flat(slices.in_offsets[r] + first, count), make_view(to, call.in.dtype, {count}),
           down_.get());
    }
    given += count;
    received += part(slices.out_counts[r]);
    result.in_counts.push_back(count);
    result.out_counts.push_back(part(slices.out_counts[r]));
  }
  result.in = make_view(slot.buffer.data(), call.in.dtype, {given});
  result.out = make_view(out, call.in.dtype, {received});
  result.balance = pair_balance(host_.rank(), result.in_counts, result.out_counts);
  slot.fetched = DeviceEvent(device_, down_.get());
  return result;
}

void StagedGroup::Staging::deliver_slices(const CollectiveCall& call, const SliceTable& slices,
                                          int64_t first, const CollectiveCall& staged, Slot& slot) {
  int64_t offset = 0;
  for (size_t r = 0; r < staged.out_counts.size(); ++r) {
    const int64_t count = staged.out_counts[r];
    if (count > 0) {
      copy(staged.out.flat(offset, count), call.out.flat(slices.out_offsets[r] + first, count),
           up_.get());
    }
    offset += count;
  }
  slot.delivered = DeviceEvent(device_, up_.get());
}

StagedGroup::StagedGroup(std::shared_ptr<WorldContext> context, std::unique_ptr<HostGroup> host,
                         DeviceBackend& device)
    : ProcessGroup(host->rank(), host->size(), host->options()),
      context_(std::move(context)),
      host_(std::move(host)),
      device_(device) {
  account_for(*host_);
  if (size() > 1) staging_ = std::make_unique<Staging>(*host_, device_);
}

StagedGroup::~StagedGroup() {
  if (std::uncaught_exceptions() > 0) {
    context_->queue(options().lane).cancel();
  } else {
    context_->queue(options().lane).drain();
  }
}

MemoryProvider& StagedGroup::memory() {
  return device_.memory();
}

Work StagedGroup::submit(const CollectiveCall& call, bool async) {
  if (size() == 1) {
    if (call.out.data != call.in.data) {
      device_.copy(call.out.data, call.in.data, static_cast<size_t>(call.out.bytes()), call.stream);
    }
    return Work();
  }
  if (captures(call.stream)) {
    throw CommError(cat("group '", options().name,
                        "': collectives through host memory cannot be captured; use NCCL"));
  }
  const auto ready = std::make_shared<const DeviceEvent>(device_, call.stream);
  const auto finished = std::make_shared<DeviceEvent>();
  const auto job = [this, call, ready, finished](bool blocking) {
    *finished = staging_->transfer(call, *ready, blocking);
  };
  CommQueue& queue = context_->queue(options().lane);
  if (!async) {
    queue.run(job, options().tracer);
    finished->hold(call.stream);
    return Work();
  }
  Work queued = queue.enqueue(job, options().tracer);
  return Work(std::make_shared<StagedWork>(queue, std::move(queued), finished, call.stream));
}

std::unique_ptr<ProcessGroup> StagedGroup::make_split(int color, int key,
                                                      const GroupOptions& options) {
  return std::make_unique<StagedGroup>(context_, host_->split_host(color, key, options), device_);
}

std::vector<std::unique_ptr<PipeLink>> StagedGroup::open_links(std::span<const LinkSpec> specs) {
  std::vector<std::unique_ptr<PipeLink>> links;
  for (auto& link : host_->make_links(specs)) {
    const bool here = link != nullptr;
    links.push_back(here ? std::make_unique<StagedLink>(std::move(link), *host_, device_)
                         : nullptr);
  }
  return links;
}

}  // namespace shale::comm
