#include "shale/kernels/simt/engine/block.h"

#include <cstdlib>

#include "shale/base/address_sanitizer.h"
#include "shale/base/text.h"
#include "shale/kernels/simt/engine/cluster.h"
#include "shale/kernels/simt/engine/report.h"

namespace shale::emulator {

constinit thread_local Fiber* t_fiber = nullptr;

namespace {

// Sanitizers need larger stack frames, and unoptimised code keeps every temporary on the stack.
constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kStackStride = kStackBytes + kPageBytes;  // with a guard page below each stack
// Returns a thread's offset in its stack's page. Stacks that all started at the same offset would
// compete for few cache lines.
size_t colour(int id) {
  return static_cast<size_t>(id) * 320 % 4096;
}

}  // namespace

Block::Block(Cluster& cluster, int rank)
    : cluster_(cluster),
      rank_(rank),
      shared_(*this),
      tracker_(*this),
      global_(*this),
      barriers_(*this),
      mbarriers_(*this),
      loads_(*this),
      warpgroups_(*this),
      registers_(*this),
      warps_(kMaxThreads / kWarp) {}

void Block::begin(const Grid& grid, Index3 index, GlobalLaunch* launch, Actors& actors) {
  grid_ = &grid;
  index_ = index;
  threads_ = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  const uint64_t number =
      index.x + uint64_t{grid.blocks.x} * (index.y + uint64_t{grid.blocks.y} * index.z);
  const uint64_t seed = grid.options.seed * 0x2545f4914f6cdd1du + number;
  queue_.reset(grid.options.order, seed);
  loads_.reset(grid.options.order, seed);
  shared_.reset(grid.dynamic_bytes, grid.shared_limit);
  tracker_.begin_block(actors, rank_, threads_, grid.options.track);
  barriers_.reset();
  mbarriers_.reset();
  warpgroups_.reset();
  registers_.reset();
  start_fibers();
  const uint64_t blocks = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  global_.begin_block(launch, number, blocks, grid.options.track);
}

void Block::end() {
  tracker_.end_block();
  global_.end_block();
  address_sanitizer::unpoison(stacks_.data(), stacks_.size());
}

void Block::start_fibers() {
  if (stack_count_ < threads_) {
    stacks_ = Mapping(static_cast<size_t>(threads_) * kStackStride);
    stack_count_ = threads_;
    for (size_t i = 0; i < static_cast<size_t>(threads_); ++i) {
      stacks_.forbid(i * kStackStride, kPageBytes);
    }
    fibers_ = std::vector<Fiber>(static_cast<size_t>(threads_));
  }
  const Index3& size = grid_->threads;
  live_ = threads_;
  const int first_actor = rank_ * Actors::threads_of(threads_);
  for (int id = 0; id < threads_; ++id) {
    Fiber& fiber = fibers_[static_cast<size_t>(id)];
    const auto linear = static_cast<unsigned>(id);
    fiber.index = {linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
    fiber.id = id;
    fiber.actor = first_actor + id;
    fiber.warp = id / kWarp;
    fiber.lane = id % kWarp;
    fiber.block = this;
    fiber.state = Fiber::State::kReady;
    fiber.primitive = nullptr;
    fiber.before_wait = grid_->dependent;
    fiber.multiplies = false;
    fiber.copies.reset();
    fiber.stores.reset();
    fiber.wgmma.reset();
    std::byte* stack = stacks_.data() + static_cast<size_t>(id) * kStackStride + kPageBytes;
    make_context(fiber.context, stack, kStackBytes - colour(id), &Block::fiber_main);
    queue_.push(&fiber);
  }
  for (int warp = 0; warp * kWarp < threads_; ++warp) {
    const int lanes = std::min(threads_ - warp * kWarp, kWarp);
    warps_[static_cast<size_t>(warp)].reset(lanes);
  }
}

void Block::fiber_main() {
  Fiber& self = *t_fiber;
  Block& block = *self.block;
  try {
    block.grid_->body();
    if (self.before_wait) {
      block.fail(Fault::kGridOrder,
                 "the thread ends without await_previous_grid() in a grid that was launched as "
                 "dependent; every thread must call it, so that all earlier grids end first");
    }
    if (self.copies.outstanding()) {
      block.fail(Fault::kAsyncCopy, "the thread ends with a cp.async that it has not waited for");
    }
    self.stores.finish(self);
    block.warpgroups().finish(self);
    block.registers().finish(self);
    block.warp(self.warp).leave(self);
  } catch (...) {  // an error of the emulator itself, such as out of memory
    block.cluster_.set_error(std::current_exception());
  }
  if (block.cluster_.has_error()) block.abandon(&self);
  block.end_thread(self);
}

void Block::end_thread(Fiber& self) {
  self.state = Fiber::State::kExited;
  if (--live_ == 0 && loads_.outstanding()) {
    fill_error(Fault::kAsyncCopy, "the block ends before its bulk copies are complete", nullptr);
    abandon(&self);
  }
  cluster_.made_progress();
  go_on(self);
}

// Switches from `self`, which waits, has ended or yields, to the next thread of the cluster that
// can run. If no thread can run, the cluster has ended or is deadlocked.
void Block::go_on(Fiber& self, bool yields) {
  const bool last = self.state == Fiber::State::kExited;
  Fiber* const next = cluster_.next(*this, yields);
  if (next == &self) return;
  if (next != nullptr) {
    if (next->block != this) next->block->tracker_.resume();
    t_fiber = next;
  }
  switch_context(self.context, next != nullptr ? next->context : cluster_.scheduler(), last);
}

std::span<const std::byte> Block::held(const void* p) const {
  std::span<const std::byte> found;
  const auto in = [&](const void* begin, size_t bytes) {
    const auto* first = static_cast<const std::byte*>(begin);
    if (static_cast<size_t>(static_cast<const std::byte*>(p) - first) < bytes) {
      found = {first, bytes};
    }
    return !found.empty();
  };
  static_cast<void>(in(stacks_.data(), stacks_.size()) || in(call_, call_bytes_) ||
                    in(fibers_.data(), fibers_.size() * sizeof(Fiber)) ||
                    in(&t_fiber, sizeof(t_fiber)) || in(this, sizeof(*this)) ||
                    in(grid_, sizeof(*grid_)));
  return found;
}

void Block::wait(Fiber& self) {
  self.state = Fiber::State::kWaiting;
  cluster_.made_progress();
  go_on(self);
}

void Block::wake(Fiber& fiber) {
  fiber.state = Fiber::State::kReady;
  queue_.push(&fiber);
}

void Block::yield(Fiber& self) {
  if (!cluster_.may_poll_on(*this)) abandon(&self);
  queue_.push_last(&self);
  go_on(self, /*yields=*/true);
}

void Block::fail(Fault fault, std::string&& what) {
  Block& own = *t_fiber->block;
  own.fill_error(fault, std::move(what), t_fiber);
  own.abandon(t_fiber);
}

std::string Block::seen_from_elsewhere() const {
  if (t_fiber == nullptr || t_fiber->block == this) return {};
  return cat(" of block ", rank_, " of the cluster");
}

void Block::fill_error(Fault fault, std::string&& what, const Fiber* self) {
  std::string text = describe_failure(*this, std::exchange(what, {}), self);
  cluster_.set_error(std::make_exception_ptr(KernelError(fault, text)));
}

void Block::abandon(Fiber* self) {
  switch_context(self->context, cluster_.scheduler(), true);
  std::abort();
}

Index3 thread_index() {
  return t_fiber->index;
}
Index3 block_index() {
  return t_fiber->block->index();
}
Index3 block_size() {
  return t_fiber->block->grid().threads;
}
Index3 grid_size() {
  return t_fiber->block->grid().blocks;
}
int lane_index() {
  return t_fiber->lane;
}
std::byte* dynamic_shared_memory() {
  return t_fiber->block->shared().dynamic_data();
}
std::byte* static_shared_memory(const void* key, size_t bytes, size_t alignment) {
  return t_fiber->block->shared().static_object(key, bytes, alignment);
}
uint32_t shared_offset(const void* p) {
  return t_fiber->block->shared().offset_of(p);
}

void check_pack(const char* name, const void* p, size_t bytes, Site site) {
  Fiber& self = enter(name, site);
  if (reinterpret_cast<uintptr_t>(p) % bytes == 0) return;
  self.block->fail(Fault::kMisaligned, cat(name, ": the address is not a multiple of ", bytes));
}

void check_space(const char* name, const void* p, Space space, Site site) {
  Fiber& self = enter(name, site);
  Block& block = *self.block;
  const bool shared = block.shared().contains(p);
  if (space == Space::kShared ? shared : !shared && !block.holds(p)) return;
  block.fail(Fault::kOutOfBounds, cat(name, ": the address is not one of ",
                                      space == Space::kShared ? "shared" : "global", " memory"));
}

}  // namespace shale::emulator
