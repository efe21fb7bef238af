#include "shale/kernels/simt/engine/block.h"

#include <cstdlib>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/address_sanitizer.h"
#include "shale/kernels/simt/engine/report.h"

namespace shale::emulator {

constinit thread_local Fiber* t_fiber = nullptr;

namespace {

// Sanitizers need more for frames, and unoptimised code keeps every temporary.
constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kStackStride = kStackBytes + kPageBytes;  // a guard page below each stack
// Stacks that all start at the same place of a page would fight for the same few cache lines.
size_t colour(int id) {
  return static_cast<size_t>(id) * 320 % 4096;
}

// Threads that only poll for so long wait for something that never comes.
constexpr int64_t kMaxIdleYields = 20'000'000;

}  // namespace

Block::Block()
    : shared_(*this),
      tracker_(*this),
      global_(*this),
      barriers_(*this),
      mbarriers_(*this),
      loads_(*this),
      warpgroups_(*this),
      registers_(*this),
      warps_(kMaxThreads / kWarp) {}

void Block::run(const Grid& grid, Index3 index, GlobalLaunch* launch,
                const std::atomic<bool>& another_failed) {
  grid_ = &grid;
  index_ = index;
  threads_ = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  error_ = nullptr;
  idle_yields_ = 0;
  another_failed_ = &another_failed;
  left_ = false;
  const uint64_t number =
      index.x + uint64_t{grid.blocks.x} * (index.y + uint64_t{grid.blocks.y} * index.z);
  const uint64_t seed = grid.options.seed * 0x2545f4914f6cdd1du + number;
  queue_.reset(grid.options.order, seed);
  loads_.reset(grid.options.order, seed);
  shared_.reset(grid.dynamic_bytes, grid.shared_limit);
  tracker_.begin_block(threads_, grid.options.track);
  barriers_.reset();
  mbarriers_.reset();
  warpgroups_.reset();
  registers_.reset();
  start_fibers();
  const uint64_t blocks = uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  global_.begin_block(launch, number, blocks, grid.options.track);

  t_fiber = queue_.pop();
  switch_context(scheduler_, t_fiber->context);
  t_fiber = nullptr;

  tracker_.end_block();
  global_.end_block();
  address_sanitizer::unpoison(stacks_.data(), stacks_.size());
  if (left_) return;
  if (!error_ && live_ > 0) report_stuck();
  if (!error_ && loads_.outstanding()) {
    fill_error(Fault::kAsyncCopy, "the block ends with bulk copies on their way", nullptr);
  }
  if (std::string damage = shared_.damage(); !error_ && !damage.empty()) {
    fill_error(Fault::kOutOfBounds, std::move(damage), nullptr);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
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
  for (int id = 0; id < threads_; ++id) {
    Fiber& fiber = fibers_[static_cast<size_t>(id)];
    const auto linear = static_cast<unsigned>(id);
    fiber.index = {linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
    fiber.id = id;
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
                 "the thread ends without await_previous_grid(), and the grid was launched as "
                 "dependent: its end has to mean the end of all grids before it");
    }
    if (self.copies.outstanding()) {
      block.fail(Fault::kAsyncCopy, "the thread ends with a cp.async that it has not waited for");
    }
    self.stores.finish(self);
    block.warpgroups().finish(self);
    block.registers().finish(self);
    block.warp(self.warp).leave(self);
  } catch (...) {  // of the emulator itself, such as out of memory
    block.error_ = std::current_exception();
  }
  if (block.error_) block.abandon(&self);
  self.state = Fiber::State::kExited;
  --block.live_;
  block.idle_yields_ = 0;
  block.go_on(self);
}

// Leaves `self`, which waits or has ended, for the next thread that can run. When there is none,
// bulk copies land, until one can; then the block has ended or is stuck.
void Block::go_on(Fiber& self) {
  const bool last = self.state == Fiber::State::kExited;
  while (queue_.empty() && live_ > 0 && loads_.land_one()) {
  }
  if (queue_.empty()) {
    switch_context(self.context, scheduler_, last);
  } else {
    Fiber* next = queue_.pop();
    if (next == &self) return;
    t_fiber = next;
    switch_context(self.context, next->context, last);
  }
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
  idle_yields_ = 0;
  go_on(self);
}

void Block::wake(Fiber& fiber) {
  fiber.state = Fiber::State::kReady;
  queue_.push(&fiber);
}

void Block::yield(Fiber& self) {
  if (++idle_yields_ > kMaxIdleYields) {
    fail(Fault::kDeadlock, "deadlock: threads poll memory that nobody changes");
  }
  // A thread that polls may wait for one that waits for a copy.
  constexpr int64_t kPatience = 1024;
  if (idle_yields_ % kPatience == 0) {
    loads_.land_one();
    if (another_failed_->load(std::memory_order_relaxed)) {
      left_ = true;
      abandon(&self);
    }
  }
  queue_.push_last(&self);
  go_on(self);
}

void Block::fail(Fault fault, std::string&& what) {
  fill_error(fault, std::move(what), t_fiber);
  abandon(t_fiber);
}

void Block::fill_error(Fault fault, std::string&& what, const Fiber* self) {
  std::string text = describe_failure(*this, std::exchange(what, {}), self);
  error_ = std::make_exception_ptr(KernelError(fault, text));
}

void Block::abandon(Fiber* self) {
  MachineContext nobody;
  switch_context(self != nullptr ? self->context : nobody, scheduler_, true);
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
  self.block->fail(Fault::kMisaligned, cat(name, ": the address is no multiple of ", bytes));
}

void check_space(const char* name, const void* p, Space space, Site site) {
  Fiber& self = enter(name, site);
  Block& block = *self.block;
  const bool shared = block.shared().contains(p);
  if (space == Space::kShared ? shared : !shared && !block.holds(p)) return;
  block.fail(Fault::kOutOfBounds, cat(name, ": the address is not one of ",
                                      space == Space::kShared ? "shared" : "global", " memory"));
}

void Block::report_stuck() {
  bool only_syncthreads = true, some_ended = false;
  for (int id = 0; id < threads_; ++id) {
    const Fiber& fiber = fibers_[static_cast<size_t>(id)];
    const bool ended = fiber.state == Fiber::State::kExited;
    some_ended |= ended;
    only_syncthreads &= ended || std::string_view(fiber.primitive) == "__syncthreads";
  }
  const std::string who = describe_threads({fibers_.data(), static_cast<size_t>(threads_)});
  if (only_syncthreads && some_ended) {
    fill_error(Fault::kDivergentBarrier, cat("divergent barrier: ", who), nullptr);
  } else {
    fill_error(Fault::kDeadlock, cat("deadlock: ", who), nullptr);
  }
}

}  // namespace shale::emulator
