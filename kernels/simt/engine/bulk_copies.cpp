#include "shale/kernels/simt/engine/bulk_copies.h"

#include <atomic>
#include <cstring>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/cluster.h"

namespace shale::emulator {
namespace {

constexpr int kPoison = 0xff;

// The additions are atomic, because the emulator runs thread blocks on several OS threads.
void add_floats(std::byte* to, const std::byte* from, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, from + i, sizeof(value));
    const std::atomic_ref<float> memory(*reinterpret_cast<float*>(to + i));
    float old = memory.load(std::memory_order_relaxed);
    while (!memory.compare_exchange_weak(old, old + value, std::memory_order_relaxed)) {
    }
  }
}

void to_shared(const BulkCopy& copy, std::byte* arena) {
  if (copy.kind == BulkCopy::Kind::kRun) {
    std::memcpy(arena + copy.offset, copy.device, copy.bytes);
    return;
  }
  if (copy.kind == BulkCopy::Kind::kWord) {
    std::memcpy(arena + copy.offset, &copy.word, copy.bytes);
    return;
  }
  std::memset(arena + copy.offset, 0, copy.bytes);
  for_pieces(copy.map, copy.offset, copy.at,
             [&](uint32_t offset, const std::byte* from, size_t bytes) {
               std::memcpy(arena + offset, from, bytes);
             });
}

void to_device(const BulkCopy& copy, const std::byte* data) {
  switch (copy.kind) {
    case BulkCopy::Kind::kRun: std::memcpy(copy.device, data, copy.bytes); return;
    case BulkCopy::Kind::kAdd: return add_floats(copy.device, data, copy.bytes);
    case BulkCopy::Kind::kWord: return;  // kWord never goes to device memory
    case BulkCopy::Kind::kBox:
      for_pieces(copy.map, copy.offset, copy.at, [&](uint32_t offset, std::byte* to, size_t bytes) {
        std::memcpy(to, data + (offset - copy.offset), bytes);
      });
  }
}

// Records accesses to the parts of a box that are inside the array. Adjacent bytes are recorded as
// one access.
void access_box(Block& block, const BulkCopy& copy, Access kind) {
  std::byte *begin = nullptr, *end = nullptr;
  const auto flush = [&] {
    if (begin != end) block.global().access(begin, static_cast<size_t>(end - begin), kind);
  };
  for_pieces(copy.map, copy.offset, copy.at, [&](uint32_t, std::byte* piece, size_t bytes) {
    if (piece != end) {
      flush();
      begin = piece;
    }
    end = piece + bytes;
  });
  flush();
}

BulkCopy box_copy(Fiber& self, const void* shared, const TensorMap& map, const Coordinates& at,
                  int dims, Access kind) {
  check_waited(self, "starts a copy between shared and");
  Block& block = *self.block;
  if (dims != map.dims) {
    block.fail(Fault::kAsyncCopy, cat(self.primitive, ": ", dims, " coordinates, expected ",
                                      map.dims, ", one for each dimension of the tensor map"));
  }
  const uint32_t offset =
      block.shared().check(shared, map.bytes, map.swizzle ? 1024 : 128, self.primitive);
  const BulkCopy copy = {
      .kind = BulkCopy::Kind::kBox, .offset = offset, .bytes = map.bytes, .map = map, .at = at};
  if (block.global().on()) access_box(block, copy, kind);
  return copy;
}

BulkCopy run_copy(Fiber& self, const void* shared, const void* device, int bytes,
                  BulkCopy::Kind kind, Access access) {
  check_waited(self, "starts a copy between shared and");
  Block& block = *self.block;
  if (bytes < 16 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(device) % 16 != 0) {
    block.fail(Fault::kMisaligned, cat(self.primitive, " of ", bytes,
                                       " bytes: expected a multiple of 16, and an address ",
                                       "in device memory that is a multiple of 16"));
  }
  const auto count = static_cast<uint32_t>(bytes);
  const uint32_t offset = block.shared().check(shared, count, 16, self.primitive);
  block.global().access(device, count, access);
  auto* end = static_cast<std::byte*>(const_cast<void*>(device));
  return {.kind = kind, .offset = offset, .bytes = count, .device = end};
}

}  // namespace

// ---- To shared memory ----

void BulkLoads::reset(Order order, uint64_t seed) {
  loads_.clear();
  order_ = order;
  random_ = SeededRandom(seed);
}

void BulkLoads::issue(Fiber& self, const BulkCopy& copy, void* mbarrier) {
  MBarriers& mbarriers = block_.mbarriers();
  const int number = mbarriers.for_copies(self, mbarrier);
  block_.tracker().load_issued(mbarriers.engine(number), self.actor, copy.offset, copy.bytes);
  std::memset(block_.shared().data() + copy.offset, kPoison, copy.bytes);
  loads_.push_back({copy, number});
}

bool BulkLoads::land_one() {
  if (loads_.empty()) return false;
  size_t which = 0;
  if (order_ == Order::kLifo) which = loads_.size() - 1;
  if (order_ == Order::kRandom) which = random_.below(loads_.size());
  const Load load = loads_[which];
  loads_.erase(loads_.begin() + static_cast<ptrdiff_t>(which));
  to_shared(load.copy, block_.shared().data());
  MBarriers& mbarriers = block_.mbarriers();
  block_.tracker().load_landed(mbarriers.engine(load.mbarrier), load.copy.offset, load.copy.bytes);
  mbarriers.landed(load.mbarrier, load.copy.bytes);
  return true;
}

// ---- To device memory ----

void BulkStores::reset() {
  open_.clear();
  groups_.clear();
  read_ = 0;
  engine_ = -1;
}

void BulkStores::issue(Fiber& self, const BulkCopy& copy) {
  Tracker& tracker = self.block->tracker();
  if (engine_ < 0) engine_ = tracker.add_engine(EngineKind::kBulkStores, self.id);
  tracker.store_issued(engine_, self.actor, copy.offset, copy.bytes);
  open_.push_back({copy});
}

void BulkStores::commit(Fiber& self) {
  Group& group = groups_.emplace_back();
  group.stores.swap(open_);
  if (engine_ >= 0) self.block->tracker().release(engine_, group.clock);
}

void BulkStores::read(Fiber& self, Group& group) {
  const std::byte* arena = self.block->shared().data();
  for (Store& store : group.stores) {
    const std::byte* from = arena + store.copy.offset;
    store.data.assign(from, from + store.copy.bytes);
  }
  self.block->tracker().learn(self.actor, group.clock);
}

void BulkStores::wait(Fiber& self, size_t newest, bool written) {
  for (; read_ + newest < groups_.size(); ++read_) read(self, groups_[read_]);
  if (!written) return;
  for (; groups_.size() > newest; groups_.pop_front(), --read_) {
    for (const Store& store : groups_.front().stores) to_device(store.copy, store.data.data());
  }
}

void BulkStores::finish(Fiber& self) {
  if (!open_.empty() || read_ < groups_.size()) {
    self.block->fail(Fault::kAsyncCopy,
                     "the thread ends with bulk stores that it has not waited for");
  }
  wait(self, 0, true);
}

// ---- Called by kernels ----

void tma_load(void* to, const TensorMap& map, void* mbarrier, const Coordinates& at, int dims,
              Site site) {
  Fiber& self = enter("tma_load", site);
  self.block->loads().issue(self, box_copy(self, to, map, at, dims, Access::kRead), mbarrier);
}

namespace {

// Issues a copy to block `rank`. The target and the mbarrier are given by the addresses that they
// would have in the block of `self`.
void issue_at(Fiber& self, const BulkCopy& copy, const void* mbarrier, int rank) {
  Block& block = self.block->cluster().reach(self, rank);
  std::byte* const arena = block.shared().data();
  static_cast<void>(block.shared().check(arena + copy.offset, copy.bytes, 1, self.primitive));
  block.loads().issue(self, copy, arena + self.block->shared().offset_of(mbarrier));
}

}  // namespace

void tma_load_multicast(void* to, const TensorMap& map, void* mbarrier, unsigned blocks,
                        const Coordinates& at, int dims, Site site) {
  Fiber& self = enter("tma_load_multicast", site);
  if (blocks == 0) self.block->fail(Fault::kCluster, "tma_load_multicast: an empty mask");
  const BulkCopy copy = box_copy(self, to, map, at, dims, Access::kRead);
  for (unsigned rest = blocks; rest != 0; rest &= rest - 1) {
    issue_at(self, copy, mbarrier, __builtin_ctz(rest));
  }
}

void send_word(uint32_t* to, uint32_t word, void* mbarrier, int rank, Site site) {
  Fiber& self = enter("send_word", site);
  const uint32_t offset = self.block->shared().check(to, sizeof(word), sizeof(word), "send_word");
  issue_at(self,
           {.kind = BulkCopy::Kind::kWord, .offset = offset, .bytes = sizeof(word), .word = word},
           mbarrier, rank);
}

void tma_store(const TensorMap& map, const void* from, const Coordinates& at, int dims, Site site) {
  Fiber& self = enter("tma_store", site);
  self.stores.issue(self, box_copy(self, from, map, at, dims, Access::kWrite));
}

void bulk_load(void* to, const void* from, int bytes, void* mbarrier, Site site) {
  Fiber& self = enter("bulk_load", site);
  self.block->loads().issue(
      self, run_copy(self, to, from, bytes, BulkCopy::Kind::kRun, Access::kRead), mbarrier);
}

void bulk_store(void* to, const void* from, int bytes, Site site) {
  Fiber& self = enter("bulk_store", site);
  self.stores.issue(self, run_copy(self, from, to, bytes, BulkCopy::Kind::kRun, Access::kWrite));
}

void bulk_add(float* to, const float* from, int bytes, Site site) {
  Fiber& self = enter("bulk_add", site);
  self.stores.issue(self, run_copy(self, from, to, bytes, BulkCopy::Kind::kAdd, Access::kAtomic));
}

void bulk_commit(Site site) {
  Fiber& self = enter("bulk_commit", site);
  self.stores.commit(self);
}

void bulk_wait(int newest, bool written, Site site) {
  Fiber& self = enter(written ? "bulk_wait" : "bulk_wait_read", site);
  self.stores.wait(self, static_cast<size_t>(newest), written);
}

void prefetch_tensor_map(const TensorMap& map, Site site) {
  const Fiber& self = enter("prefetch_tensor_map", site);
  if (map.dims > 0) return;
  self.block->fail(Fault::kAsyncCopy, cat(self.primitive, ": the tensor map was not encoded"));
}

}  // namespace shale::emulator
