#include "shale/kernels/simt/engine/tracker.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"
#include "shale/kernels/simt/engine/report.h"

namespace shale::emulator {

constinit thread_local const std::byte* t_tracked_arena = nullptr;

int Actors::threads_of(int block_threads) {
  return (block_threads + kWarp - 1) / kWarp * kWarp;
}

void Actors::reset(int block_threads, int blocks) {
  threads_of_block = threads_of(block_threads);
  threads = threads_of_block * blocks;
  clocks.reset(threads);
  engines.clear();
  fences.clear();
}

Tracker::Tracker(Block& block) : block_(block) {}

void Tracker::begin_block(Actors& actors, int rank, int threads, bool on) {
  // Without instrumentation the tracker would see only the writes of primitives, and would report
  // reads of memory that other code has written as uninitialised.
  on_ = on && has_instrumented_kernels();
  if (!on_) return;
  // Epoch numbers continue from block to block, so that cells of the last block need not be
  // cleared. Before the numbers overflow, all cells are reset.
  if (shadow_.empty() || epoch_ > UINT32_MAX / 2) {
    shadow_.clear();
    epoch_ = 0;
  }
  first_epoch_ = ++epoch_;
  actors_ = &actors;
  rank_ = rank, threads_ = threads;
  has_epochs_ = actors.threads == actors.threads_of_block;  // the cluster has one block
}

void Tracker::resume() {
  t_tracked_arena = on_ ? block_.shared().data() : nullptr;
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
  access(t_fiber->actor, offset, bytes, kind);
  instruction_ = nullptr;
}

void Tracker::early_access(const void* p, uint32_t bytes, Access kind, const void* instruction) {
  if (block_.holds(p)) return;
  instruction_ = instruction;
  std::string text = cat("the thread ", verb(kind), " ", bytes, " bytes of", kBeforeWait);
  report(Fault::kGridOrder, std::move(text));
}

void Tracker::access(int thread, uint32_t offset, uint32_t bytes, Access kind) {
  if (on_) access({.actor = thread, .thread = thread}, offset, bytes, kind);
}

void Tracker::access(const Accessor& by, uint32_t offset, uint32_t bytes, Access kind) {
  shadow_.visit(offset, bytes, [&](Cell& cell, uint32_t at) { access_cell(cell, by, at, kind); });
}

void Tracker::access_cell(Cell& cell, const Accessor& by, uint32_t offset, Access kind) {
  check_after_write(cell, by, offset, kind);
  if (by.is_engine()) check_proxy(cell, by, offset, kind);
  if (kind == Access::kRead) return add_reader(cell, by.actor);
  check_after_reads(cell, by, offset, kind);
  cell.write_epoch = epoch_;
  cell.write_time = actors_->clocks.now(by.actor);
  cell.writer = static_cast<uint16_t>(by.actor);
  cell.state = kind == Access::kAtomic ? Shadow::kAtomicWrite
               : by.is_engine()        ? Shadow::kAsyncWrite
                                       : 0;
  // Forgets earlier reads: an access that is ordered after this write is also ordered after them.
  cell.read_epoch = 0;
  std::fill_n(cell.readers, 2, Shadow::Readers{});
  std::fill_n(cell.reader_warp, 2, uint16_t{0});
}

void Tracker::check_after_write(const Cell& cell, const Accessor& by, uint32_t offset,
                                Access kind) {
  if (cell.write_epoch < first_epoch_) {
    if (kind == Access::kWrite) return;
    std::string text = cat(name_of(by.actor), " ", verb(kind), " ", location(offset),
                           ", which nobody has written");
    report(Fault::kUninitialised, std::move(text));
  }
  const int writer = cell.writer;
  if ((cell.state & Shadow::kInFlight) != 0) {
    std::string text = cat(name_of(by.actor), " ", verb(kind), " ", location(offset), ", to which ",
                           writer < actors_->threads ? "a cp.async of " : "", name_of(writer),
                           " is still on its way: nobody has waited for it");
    report(Fault::kAsyncCopy, std::move(text));
  }
  if (cell.write_epoch < epoch_ || seen(by, writer) >= cell.write_time) return;
  const bool was_atomic = (cell.state & Shadow::kAtomicWrite) != 0;
  if (was_atomic && kind == Access::kAtomic) return;
  report_race(by, kind, offset, writer, was_atomic ? "changed atomically" : "wrote");
}

void Tracker::check_after_reads(const Cell& cell, const Accessor& by, uint32_t offset,
                                Access kind) {
  if (cell.read_epoch < epoch_) return;
  for (int slot = 0; slot < 2; ++slot) {
    for (uint32_t rest = cell.readers[slot].lanes; rest != 0; rest &= rest - 1) {
      const int warp = cell.reader_warp[slot];
      const int first_engine = actors_->threads / kWarp;
      const int reader = warp < first_engine ? warp * kWarp + __builtin_ctz(rest)
                                             : actors_->threads + warp - first_engine;
      if (seen(by, reader) < cell.readers[slot].time) {
        report_race(by, kind, offset, reader, "read");
      }
    }
  }
}

// The async proxy sees what a thread wrote only after a fence by that thread. The fence must come
// after the write, and the thread that issued the operation must have seen it.
void Tracker::check_proxy(const Cell& cell, const Accessor& by, uint32_t offset, Access kind) {
  if (cell.write_epoch < first_epoch_ || (cell.state & Shadow::kAsyncWrite) != 0) return;
  const size_t writer = cell.writer;
  const uint32_t since = cell.write_epoch < epoch_ ? 0 : cell.write_time;
  if (writer < actors_->fences.size()) {
    const auto fence =
        std::lower_bound(actors_->fences[writer].begin(), actors_->fences[writer].end(), since);
    if (fence != actors_->fences[writer].end() && *fence <= seen(by, cell.writer)) return;
  }
  std::string text = cat(name_of(by.actor), " ", verb(kind), " ", location(offset), ", which ",
                         name_of(cell.writer), " wrote without a fence_proxy_async() after it");
  report(Fault::kProxyFence, std::move(text));
}

int Tracker::reader_warp(int actor) const {
  const int threads = actors_->threads;
  return actor < threads ? actor / kWarp : threads / kWarp + actor - threads;
}

// A cell has two slots, for readers of two warps. If more warps have read, a write is checked only
// against the two recorded warps.
void Tracker::add_reader(Cell& cell, int actor) const {
  const auto warp = static_cast<uint16_t>(reader_warp(actor));
  const uint32_t lane = actor < actors_->threads ? 1u << (actor % kWarp) : 1u;
  const uint32_t now = actors_->clocks.now(actor);
  if (cell.read_epoch != epoch_) {
    cell.read_epoch = epoch_;
    cell.readers[0] = {now, lane};
    cell.readers[1] = {0, 0};
    cell.reader_warp[0] = warp;
    return;
  }
  int slot = cell.reader_warp[0] == warp ? 0 : 1;
  Shadow::Readers& readers = cell.readers[slot];
  if (readers.lanes != 0 && cell.reader_warp[slot] == warp && readers.time == now) {
    readers.lanes |= lane;
    return;
  }
  readers = {now, lane};
  cell.reader_warp[slot] = warp;
}

void Tracker::set_state(uint32_t offset, uint32_t bytes, uint8_t state) {
  shadow_.visit(offset, bytes, [&](Cell& cell, uint32_t) { cell.state = state; });
}

void Tracker::copy_issued(int thread, uint32_t offset, uint32_t bytes) {
  if (!on_) return;
  access(thread, offset, bytes, Access::kWrite);
  set_state(offset, bytes, Shadow::kInFlight);
}

void Tracker::copy_landed(int thread, uint32_t offset, uint32_t bytes) {
  if (!on_) return;
  set_state(offset, bytes, 0);
  access(thread, offset, bytes, Access::kWrite);
}

// ---- Engines ----

int Tracker::add_engine(EngineKind kind, int number) {
  if (!on_) return 0;
  has_epochs_ = false;
  actors_->engines.push_back({kind, rank_, number});
  return actors_->clocks.add_actor();
}

void Tracker::load_issued(int engine, int thread, uint32_t offset, uint32_t bytes) {
  if (!on_) return;
  access({.actor = engine, .thread = thread}, offset, bytes, Access::kWrite);
  set_state(offset, bytes, Shadow::kInFlight | Shadow::kAsyncWrite);
}

void Tracker::load_landed(int engine, uint32_t offset, uint32_t bytes) {
  if (!on_) return;
  shadow_.visit(offset, bytes, [&](Cell& cell, uint32_t) {
    cell.state = Shadow::kAsyncWrite;
    cell.write_time = actors_->clocks.now(engine);
  });
}

void Tracker::store_issued(int engine, int thread, uint32_t offset, uint32_t bytes) {
  if (on_) access({.actor = engine, .thread = thread}, offset, bytes, Access::kRead);
}

void Tracker::product_reads(int engine, std::span<const int> threads, uint32_t offset,
                            uint32_t bytes) {
  if (!on_) return;
  for (const int thread : threads) {
    access({.actor = engine, .thread = thread, .collective = true}, offset, bytes, Access::kRead);
  }
}

std::vector<int> Tracker::different_knowledge(int first_thread, int count) const {
  std::vector<int> threads;
  if (!on_) return threads;
  for (int thread = first_thread; thread < first_thread + count; ++thread) {
    const bool is_new = std::none_of(threads.begin(), threads.end(), [&](int other) {
      return actors_->clocks.know_the_same(thread, other);
    });
    if (is_new) threads.push_back(thread);
  }
  return threads;
}

void Tracker::proxy_fence(int thread) {
  if (!on_) return;
  has_epochs_ = false;
  actors_->fences.resize(static_cast<size_t>(actors_->threads));
  actors_->fences[static_cast<size_t>(thread)].push_back(actors_->clocks.tick(thread));
}

// ---- Order of accesses ----

void Tracker::barrier_of_all() {
  if (!on_) return;
  if (has_epochs_) {
    ++epoch_;
    actors_->clocks.reset(actors_->threads);
    return;
  }
  std::vector<int> all(static_cast<size_t>(threads_));
  std::iota(all.begin(), all.end(), actors_->first_of(rank_));
  join(all);
}

void Tracker::join_lanes(int warp, uint32_t lanes) {
  if (!on_) return;
  std::array<int, kWarp> actors{};
  size_t count = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    actors[count++] = actors_->first_of(rank_) + warp * kWarp + __builtin_ctz(rest);
  }
  join(std::span<const int>(actors.data(), count));
}

void Tracker::join(std::span<const int> threads) {
  SyncClock clock;
  for (const int thread : threads) actors_->clocks.release(thread, clock);
  actors_->clocks.acquire(threads, clock);
}

void Tracker::release(int actor, SyncClock& clock) {
  if (on_) actors_->clocks.release(actor, clock);
}

void Tracker::learn(int thread, SyncClock& clock) {
  if (on_) actors_->clocks.learn(thread, clock);
}

void Tracker::acquire(std::span<Fiber* const> fibers, const std::vector<bool>& waits,
                      const SyncClock& clock) {
  if (!on_) return;
  std::vector<int> actors;
  for (size_t i = 0; i < fibers.size(); ++i) {
    if (waits[i]) actors.push_back(fibers[i]->actor);
  }
  actors_->clocks.acquire(actors, clock);
}

std::string Tracker::location(uint32_t offset) const {
  return block_.shared().describe(offset) + block_.seen_from_elsewhere();
}

std::string Tracker::thread_name(int actor) const {
  const int rank = actor / actors_->threads_of_block, thread = actor % actors_->threads_of_block;
  return cat("thread ", thread, rank == rank_ ? "" : cat(" of block ", rank, " of the cluster"));
}

std::string Tracker::name_of(int actor) const {
  if (actor < actors_->threads) {
    return t_fiber != nullptr && actor == t_fiber->actor ? "this thread" : thread_name(actor);
  }
  const Actors::Engine& engine = actors_->engines[static_cast<size_t>(actor - actors_->threads)];
  switch (engine.kind) {
    case EngineKind::kBulkLoads: return cat("a bulk copy for mbarrier ", engine.number);
    case EngineKind::kBulkStores: return cat("a bulk store of thread ", engine.number);
    case EngineKind::kWgmma: break;
  }
  return cat("a wgmma of warpgroup ", engine.number);
}

void Tracker::report_race(const Accessor& by, Access kind, uint32_t offset, int other,
                          const char* did) {
  std::string text = cat("race: ", by.is_engine() ? name_of(by.actor) : thread_name(by.actor), " ",
                         verb(kind), " ", location(offset), ", which ",
                         other < actors_->threads ? thread_name(other) : name_of(other), " ", did,
                         " with nothing to order the two");
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
