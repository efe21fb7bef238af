#include "shale/runtime/tensor/allocator.h"

#include <cstdlib>
#include <map>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A device whose streams and events the test controls: an event completes when the test says so.
class FakeBackend final : public DeviceBackend {
 public:
  class Memory final : public MemoryProvider {
   public:
    void* allocate(size_t bytes) override {
      if (held + int64_t(bytes) > limit) throw OutOfMemoryError("fake: full");
      held += int64_t(bytes);
      void* memory = std::aligned_alloc(4096, bytes);
      sizes[memory] = bytes;
      return memory;
    }
    void free(void* memory, size_t bytes) noexcept override {
      wrong_free = wrong_free || sizes[memory] != bytes;
      held -= int64_t(bytes);
      sizes.erase(memory);
      std::free(memory);
    }
    int64_t held = 0;
    int64_t limit = int64_t{1} << 40;
    bool wrong_free = false;
    std::map<void*, size_t> sizes;
  };

  Device device() const override { return {}; }
  MemoryProvider& memory() override { return device_memory; }
  MemoryProvider& host_memory() override { return device_memory; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}
  void* create_stream() override { return nullptr; }
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}
  void* record_event(void*) override {
    ++events;
    return this;
  }
  void wait_event(void*, void*) override {}
  bool event_done(void*) override { return events_done; }
  void synchronize_event(void*) override { events_done = true; }
  void destroy_event(void*) noexcept override { --events; }
  void copy(void*, const void*, size_t, void*) override {}

  Memory device_memory;
  int events = 0;
  bool events_done = false;
};

struct Fixture {
  explicit Fixture(int64_t budget = 0) : allocator(backend, budget) {}
  CachingAllocator::Block* take(int64_t bytes, MemoryTag tag = MemoryTag::kActivation,
                                void* stream = nullptr) {
    return allocator.allocate(bytes, tag, stream, "test");
  }
  FakeBackend backend;
  CachingAllocator allocator;
};

int streams[2];

}  // namespace

TEST_CASE("freed memory is used again instead of asking the device") {
  Fixture f;
  auto* a = f.take(8 * kMiB);
  void* where = CachingAllocator::data(a);
  f.allocator.free(a);
  auto* b = f.take(8 * kMiB);
  CHECK(CachingAllocator::data(b) == where);
  CHECK(f.backend.device_memory.held == 8 * kMiB);
  f.allocator.free(b);
}

TEST_CASE("blocks never overlap, are aligned, and everything goes back in the end") {
  FakeBackend backend;
  {
    CachingAllocator allocator(backend, 0);
    std::map<std::byte*, std::pair<int64_t, CachingAllocator::Block*>> live;
    for (uint32_t i = 0; i < 4000; ++i) {
      const PhiloxCounter random = philox({i, 0, 0, 0}, {1, 2});
      if (live.size() > 40 || (random[0] % 2 == 0 && !live.empty())) {
        auto victim = std::next(live.begin(), random[1] % live.size());
        allocator.free(victim->second.second);
        live.erase(victim);
        continue;
      }
      const int64_t bytes = random[1] % 3 == 0 ? random[2] % (6 * kMiB) : random[2] % 5000;
      auto* block = allocator.allocate(bytes, MemoryTag(random[3] % kMemoryTags), nullptr, "test");
      auto* begin = static_cast<std::byte*>(CachingAllocator::data(block));
      REQUIRE(reinterpret_cast<uintptr_t>(begin) % 512 == 0);
      const auto next = live.lower_bound(begin);
      REQUIRE((next == live.end() || begin + bytes <= next->first));
      REQUIRE((next == live.begin() ||
               std::prev(next)->first + std::prev(next)->second.first <= begin));
      live[begin] = {bytes, block};
    }
    for (const auto& [begin, entry] : live) allocator.free(entry.second);
    CHECK(allocator.stats().allocated == 0);
    allocator.release_cached();
    CHECK(allocator.stats().reserved == 0);
  }
  CHECK(backend.device_memory.held == 0);
  CHECK_FALSE(backend.device_memory.wrong_free);
}

TEST_CASE("a small request does not pin a large segment") {
  Fixture f;
  auto* large = f.take(64 * kMiB);
  f.allocator.free(large);
  auto* small = f.take(100);
  f.allocator.release_cached();
  CHECK(f.backend.device_memory.held == 2 * kMiB);
  f.allocator.free(small);
}

TEST_CASE("the budget bounds what is held, and cached memory is given back before failing") {
  Fixture f(16 * kMiB);
  f.allocator.free(f.take(10 * kMiB));
  auto* block = f.take(14 * kMiB);  // fits only if the cached 10 MiB are given back
  const std::string message = message_of<OutOfMemoryError>([&] { f.take(4 * kMiB); });
  CHECK(contains(message, "test needs 4.0 MiB"));
  CHECK(contains(message, "of the 16.0 MiB budget of "));
  CHECK(contains(message, " are free\n  memory of "));
  CHECK_FALSE(message.ends_with('\n'));
  CHECK(contains(message, "activations"));
  CHECK(f.allocator.stats().peak_reserved <= 16 * kMiB);
  f.allocator.free(block);
  f.allocator.free(f.take(16 * kMiB));
}

TEST_CASE("a device that is full is asked again after the cache was given back") {
  Fixture f;
  f.backend.device_memory.limit = 16 * kMiB;
  f.allocator.free(f.take(10 * kMiB));
  auto* block = f.take(12 * kMiB);
  CHECK(contains(message_of<OutOfMemoryError>([&] { f.take(12 * kMiB); }), "fake: full"));
  f.allocator.free(block);
}

TEST_CASE("statistics divide the peak by tags") {
  Fixture f;
  auto* parameters = f.take(4 * kMiB, MemoryTag::kParameter);
  auto* activations = f.take(6 * kMiB, MemoryTag::kActivation);
  f.allocator.free(activations);
  auto* more = f.take(2 * kMiB, MemoryTag::kGradient);
  const MemoryStats stats = f.allocator.stats();
  CHECK(stats.allocated == 6 * kMiB);
  CHECK(stats.peak_allocated == 10 * kMiB);
  CHECK(stats.at_peak[size_t(MemoryTag::kParameter)] == 4 * kMiB);
  CHECK(stats.at_peak[size_t(MemoryTag::kActivation)] == 6 * kMiB);
  CHECK(stats.at_peak[size_t(MemoryTag::kGradient)] == 0);
  // 6 MiB are in use: a segment of 4 MiB, and 2 MiB of the segment whose block was freed. 4 MiB of
  // that segment remain free.
  const std::string summary = f.allocator.memory_summary();
  CHECK(contains(summary, "sum of parts          6.0 MiB     10.0 MiB"));
  CHECK(contains(summary, "reserved, free        4.0 MiB          0 B"));
  CHECK(contains(summary, "largest free block 4.0 MiB"));
  f.allocator.reset_peak();
  CHECK(f.allocator.stats().peak_allocated == 6 * kMiB);
  f.allocator.free(parameters);
  f.allocator.free(more);
}

TEST_CASE("a block that another stream uses waits for that stream") {
  Fixture f;
  void* mine = &streams[0];
  auto* block = f.take(4 * kMiB, MemoryTag::kActivation, mine);
  void* where = CachingAllocator::data(block);
  f.allocator.record_stream(block, &streams[1]);
  f.allocator.free(block);
  auto* other = f.take(4 * kMiB, MemoryTag::kActivation, mine);
  CHECK(CachingAllocator::data(other) != where);
  f.backend.events_done = true;
  auto* again = f.take(4 * kMiB, MemoryTag::kActivation, mine);
  CHECK(CachingAllocator::data(again) == where);
  CHECK(f.backend.events == 0);
  f.allocator.free(other);
  f.allocator.free(again);
}

TEST_CASE("a pool's free memory serves nobody else and is kept up to its release") {
  Fixture f;
  const uint64_t pool = f.allocator.make_pool();
  CHECK(f.allocator.use_pool(pool) == 0);
  auto* block = f.take(4 * kMiB);
  void* where = CachingAllocator::data(block);
  f.allocator.free(block);
  CHECK(f.allocator.use_pool(0) == pool);
  auto* common = f.take(4 * kMiB);
  CHECK(CachingAllocator::data(common) != where);
  f.allocator.free(common);
  f.allocator.release_cached();
  CHECK(f.backend.device_memory.held == 4 * kMiB);
  f.allocator.use_pool(pool);
  block = f.take(4 * kMiB);
  CHECK(CachingAllocator::data(block) == where);
  f.allocator.use_pool(0);
  f.allocator.free(block);
  f.allocator.release_pool(pool);
  CHECK(f.backend.device_memory.held == 0);
}

TEST_CASE("a capture asks for no events and gives nothing back") {
  Fixture f(12 * kMiB);
  const auto used_by_two = [&] {
    auto* block = f.take(4 * kMiB, MemoryTag::kActivation, &streams[0]);
    f.allocator.record_stream(block, &streams[1]);
    return block;
  };
  auto *before = used_by_two(), *within = used_by_two();
  f.allocator.free(before);
  CHECK(f.backend.events == 1);
  f.allocator.begin_capture();
  CHECK(f.backend.events == 0);  // all events were waited for
  f.backend.events_done = false;
  void* where = CachingAllocator::data(within);
  f.allocator.free(within);
  CHECK(f.backend.events == 0);
  // The two cached blocks were used by another stream. This stream does not get them, even if
  // memory runs out.
  CHECK_THROWS_AS(f.take(8 * kMiB, MemoryTag::kActivation, &streams[1]), OutOfMemoryError);
  CHECK(f.backend.events == 0);
  CHECK(f.backend.device_memory.held == 8 * kMiB);
  f.allocator.end_capture();
  CHECK(f.backend.events == 1);
  f.backend.events_done = true;
  auto* first = f.take(4 * kMiB, MemoryTag::kActivation, &streams[0]);
  auto* second = f.take(4 * kMiB, MemoryTag::kActivation, &streams[0]);
  CHECK((CachingAllocator::data(first) == where || CachingAllocator::data(second) == where));
  f.allocator.free(first);
  f.allocator.free(second);
}

TEST_CASE("blocks that other streams use are waited for before memory runs out") {
  const bool by_budget = GENERATE(true, false);
  Fixture f(by_budget ? 16 * kMiB : 0);
  f.backend.device_memory.limit = 16 * kMiB;
  auto* block = f.take(12 * kMiB, MemoryTag::kActivation, &streams[0]);
  f.allocator.record_stream(block, &streams[1]);
  f.allocator.free(block);
  auto* next = f.take(12 * kMiB, MemoryTag::kActivation, &streams[0]);
  CHECK(f.backend.events_done);
  CHECK(f.backend.events == 0);
  f.allocator.free(next);
}

TEST_CASE("an allocator that goes away waits for the streams that still use its blocks") {
  FakeBackend backend;
  {
    CachingAllocator allocator(backend, 0);
    auto* block = allocator.allocate(kMiB, MemoryTag::kActivation, &streams[0], "test");
    allocator.record_stream(block, &streams[1]);
    allocator.free(block);
  }
  CHECK(backend.events_done);
  CHECK(backend.events == 0);
  CHECK(backend.device_memory.held == 0);
}

TEST_CASE("streams do not take each other's free blocks") {
  Fixture f;
  auto* block = f.take(4 * kMiB, MemoryTag::kActivation, &streams[0]);
  void* where = CachingAllocator::data(block);
  f.allocator.free(block);
  auto* other = f.take(4 * kMiB, MemoryTag::kActivation, &streams[1]);
  CHECK(CachingAllocator::data(other) != where);
  f.allocator.free(other);
}

TEST_CASE("a tag can have memory of its own") {
  Fixture f;
  FakeBackend::Memory peers;
  f.allocator.set_provider(MemoryTag::kGradient, &peers);
  auto* gradient = f.take(3 * kMiB, MemoryTag::kGradient);
  auto* other = f.take(3 * kMiB, MemoryTag::kActivation);
  CHECK(peers.held == 4 * kMiB);  // 3 MiB rounded up to a multiple of 2 MiB
  CHECK(f.backend.device_memory.held == 4 * kMiB);
  f.allocator.free(gradient);
  f.allocator.set_provider(MemoryTag::kGradient, nullptr);
  CHECK(peers.held == 0);
  f.allocator.free(other);
}

TEST_CASE("an observer sees what is allocated, with its rounding, and freed") {
  struct Notes final : AllocationObserver {
    void allocated(const void* block, int64_t bytes, MemoryTag tag, std::string_view) override {
      CHECK(tag == MemoryTag::kComm);
      live[block] = bytes;
    }
    void freed(const void* block) override { live.erase(block); }
    std::map<const void*, int64_t> live;
  };
  Fixture f;
  Notes notes;
  f.allocator.set_observer(&notes);
  auto* block = f.take(1000, MemoryTag::kComm);
  CHECK(notes.live == std::map<const void*, int64_t>{{block, 1024}});
  f.allocator.free(block);
  CHECK(notes.live.empty());
  f.allocator.set_observer(nullptr);
  f.allocator.free(f.take(1000, MemoryTag::kData));
}

}  // namespace shale::test
