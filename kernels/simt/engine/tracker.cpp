#include "kernels/simt/engine/tracker.h"

#include <array>
#include <cstring>

#include "kernels/simt/engine/block.h"
#include "kernels/simt/engine/report.h"
#include "runtime/base/text.h"

namespace shale::emulator {

constinit thread_local const std::byte* t_tracked_arena = nullptr;

namespace {

const char* verb(Access kind) {
  switch (kind) {
    case Access::kRead: return "reads";
    case Access::kWrite: return "writes";
    case Access::kAtomic: return "changes atomically";
  }
  return "";
}

}  // namespace

Tracker::Tracker(Block& block) : block_(block) {}

void Tracker::begin_block(int threads, bool on) {
  // Without instrumentation only the primitives' reads would be seen, and take all for unwritten.
  on_ = on && has_instrumented_kernels();
  if (!on_) return;
  // Epochs go on from block to block, so that cells of the last block need no clearing; before they
  // run out, all cells start anew.
  if (shadow_.data() == nullptr || epoch_ > UINT32_MAX / 2) {
    shadow_ = Mapping(SharedMemory::kBytes * sizeof(Cell));
    epoch_ = 0;
  }
  first_epoch_ = ++epoch_;
  threads_ = threads;
  clocks_.reset(threads);
  t_tracked_arena = block_.shared().data();
}

void Tracker::end_block() {
  on_ = false;
  t_tracked_arena = nullptr;
}

void Tracker::plain_access(const void* p, uint32_t bytes, Access kind, const void* instruction) {
  instruction_ = instruction;
  const auto offset = static_cast<uint32_t>(static_cast<const std::byte*>(p) - t_tracked_arena);
  if (!block_.shared().allocated(offset, bytes)) {
    std::string text = cat("this thread ", verb(kind), " ", bytes, " bytes at ", location(offset),
                           ", outside the block's shared memory");
    report(Fault::kOutOfBounds, std::move(text));
  }
  access(t_fiber->id, offset, bytes, kind);
  instruction_ = nullptr;
}

void Tracker::access(int actor, uint32_t offset, uint32_t bytes, Access kind) {
  if (!on_) return;
  Cell* cells = reinterpret_cast<Cell*>(shadow_.data()) + offset;
  // The bytes of an element mostly share their history: look at the first, copy the outcome.
  const Cell before = cells[0];
  access_byte(cells[0], actor, offset, kind);
  for (uint32_t i = 1; i < bytes; ++i) {
    if (std::memcmp(&cells[i], &before, sizeof(Cell)) == 0) {
      cells[i] = cells[0];
    } else {
      access_byte(cells[i], actor, offset + i, kind);
    }
  }
}

void Tracker::access_byte(Cell& cell, int actor, uint32_t offset, Access kind) {
  check_after_write(cell, actor, offset, kind);
  if (kind == Access::kRead) return add_reader(cell, actor);
  check_after_reads(cell, actor, offset, kind);
  cell.write_epoch = epoch_;
  cell.write_time = clocks_.now(actor);
  cell.writer = static_cast<uint16_t>(actor);
  cell.state = kind == Access::kAtomic ? kAtomicWrite : 0;
  cell.read_epoch = 0;  // who is ordered after this write is ordered after what came before it
}

void Tracker::check_after_write(const Cell& cell, int actor, uint32_t offset, Access kind) {
  if (cell.write_epoch < first_epoch_) {
    if (kind == Access::kWrite) return;
    std::string text =
        cat("this thread ", verb(kind), " ", location(offset), ", which nobody has written");
    report(Fault::kUninitialised, std::move(text));
  }
  const int writer = cell.writer;
  if ((cell.state & kInFlight) != 0) {
    std::string text =
        cat("this thread ", verb(kind), " ", location(offset), ", to which a cp.async of thread ",
            writer, " is still on its way: it has not waited for it");
    report(Fault::kAsyncCopy, std::move(text));
  }
  if (cell.write_epoch < epoch_ || clocks_.seen(actor, writer) >= cell.write_time) return;
  const bool was_atomic = (cell.state & kAtomicWrite) != 0;
  if (was_atomic && kind == Access::kAtomic) return;
  report_race(actor, kind, offset, writer, was_atomic ? "changed atomically" : "wrote");
}

void Tracker::check_after_reads(const Cell& cell, int actor, uint32_t offset, Access kind) {
  if (cell.read_epoch < epoch_) return;
  for (int slot = 0; slot < 2; ++slot) {
    for (uint32_t rest = cell.readers[slot].lanes; rest != 0; rest &= rest - 1) {
      const int reader = cell.reader_warp[slot] * kWarp + __builtin_ctz(rest);
      if (clocks_.seen(actor, reader) < cell.readers[slot].time) {
        report_race(actor, kind, offset, reader, "read");
      }
    }
  }
}

// Two slots for readers of two warps: a write that is not ordered after all readers is then found
// unless it is ordered after both warps that were kept.
void Tracker::add_reader(Cell& cell, int actor) const {
  const auto warp = static_cast<uint8_t>(actor / kWarp);
  const uint32_t lane = 1u << (actor % kWarp);
  const uint32_t now = clocks_.now(actor);
  if (cell.read_epoch != epoch_) {
    cell.read_epoch = epoch_;
    cell.readers[0] = {now, lane};
    cell.readers[1] = {0, 0};
    cell.reader_warp[0] = warp;
    return;
  }
  int slot = cell.reader_warp[0] == warp ? 0 : 1;
  Readers& readers = cell.readers[slot];
  if (readers.lanes != 0 && cell.reader_warp[slot] == warp && readers.time == now) {
    readers.lanes |= lane;
    return;
  }
  readers = {now, lane};
  cell.reader_warp[slot] = warp;
}

void Tracker::copy_issued(int thread, uint32_t offset, uint32_t bytes) {
  if (!on_) return;
  access(thread, offset, bytes, Access::kWrite);
  Cell* cells = reinterpret_cast<Cell*>(shadow_.data()) + offset;
  for (uint32_t i = 0; i < bytes; ++i) cells[i].state = kInFlight;
}

void Tracker::copy_landed(int thread, uint32_t offset, uint32_t bytes) {
  if (!on_) return;
  Cell* cells = reinterpret_cast<Cell*>(shadow_.data()) + offset;
  for (uint32_t i = 0; i < bytes; ++i) cells[i].state = 0;
  access(thread, offset, bytes, Access::kWrite);
}

void Tracker::barrier_of_all() {
  if (!on_) return;
  ++epoch_;
  clocks_.reset(threads_);
}

void Tracker::join_lanes(int warp, uint32_t lanes) {
  if (!on_) return;
  SyncClock clock;
  std::array<int, kWarp> actors{};
  size_t count = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    actors[count++] = warp * kWarp + __builtin_ctz(rest);
  }
  const std::span<const int> all(actors.data(), count);
  for (const int actor : all) clocks_.release(actor, clock);
  clocks_.acquire(all, clock);
}

void Tracker::release(int thread, SyncClock& clock) {
  if (on_) clocks_.release(thread, clock);
}

void Tracker::acquire(std::span<Fiber* const> fibers, const std::vector<bool>& waits,
                      const SyncClock& clock) {
  if (!on_) return;
  std::vector<int> actors;
  for (size_t i = 0; i < fibers.size(); ++i) {
    if (waits[i]) actors.push_back(fibers[i]->id);
  }
  clocks_.acquire(actors, clock);
}

std::string Tracker::location(uint32_t offset) const {
  return block_.shared().describe(offset);
}

void Tracker::report_race(int actor, Access kind, uint32_t offset, int other, const char* did) {
  std::string text = cat("race: thread ", actor, " ", verb(kind), " ", location(offset),
                         ", which thread ", other, " ", did, " with nothing to order the two");
  report(Fault::kRace, std::move(text));
}

void Tracker::report(Fault fault, std::string&& what) {
  std::string text = std::exchange(what, {});
  if (instruction_ != nullptr)
    text += cat(" (instruction ", describe_instruction(instruction_), ")");
  instruction_ = nullptr;
  block_.fail(fault, std::move(text));
}

}  // namespace shale::emulator
