#include "shale/runtime/offload/disk_memory.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/random.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/optim/shard.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

using offload::DiskMemory;
using offload::HostTier;

constexpr size_t kPage = kDirectAlignment;

// Memory of a tensor, whose begin and end lie inside pages.
struct Part {
  std::span<std::byte> bytes;
  size_t pages() const {
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    return align_down(begin + bytes.size()) - align_up(begin);
  }
  void write(unsigned seed) const {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  }
  bool has(unsigned seed) const {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] != static_cast<std::byte>(i * 7 + seed)) return false;
    }
    return true;
  }
};

}  // namespace

TEST_CASE("memory on a disk has what was written last, in memory or not", "[offload]") {
  const auto way = GENERATE(AsyncIo::kAuto, AsyncIo::kThreads);
  const TempDir folder;
  DiskMemory memory(folder.path(), way);
  constexpr size_t kBytes = 300 * kPage;
  auto* const begin = static_cast<std::byte*>(memory.allocate(kBytes));
  // Two adjacent tensors that share a page, and a tensor inside a page.
  const Part parts[] = {{{begin, 100 * kPage + 512}},
                        {{begin + 100 * kPage + 512, 150 * kPage}},
                        {{begin + 250 * kPage + 512, 1024}}};
  CHECK(std::all_of(begin, begin + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  // Memory may also be written without acquiring it.
  for (unsigned i = 0; i < 3; ++i) parts[i].write(i);
  for (unsigned round = 0; round < 3; ++round) {
    CAPTURE(round);
    for (const Part& part : parts) memory.prefetch(part.bytes);
    CHECK(memory.resident_bytes() == int64_t(parts[0].pages() + parts[1].pages()));
    for (unsigned i = 0; i < 3; ++i) {
      memory.acquire(parts[i].bytes);
      CHECK(parts[i].has(i + 10 * round));
      parts[i].write(i + 10 * (round + 1));
      memory.release(parts[i].bytes, /*changed=*/true);
      // The memory can be read while it is written to the disk.
      CHECK(parts[i].has(i + 10 * (round + 1)));
    }
    if (round == 1) continue;  // skips settle(), so that round 2 may find the ranges in memory
    memory.settle();
    CHECK(memory.resident_bytes() == 0);
    for (unsigned i = 0; i < 3; ++i) CHECK(parts[i].has(i + 10 * (round + 1)));
  }
  // Memory that did not change is not written; memory that will be overwritten is not read.
  const auto before = memory.traffic();
  memory.acquire(parts[0].bytes);
  memory.release(parts[0].bytes, /*changed=*/false);
  CHECK(memory.traffic().written == before.written);
  memory.acquire(parts[0].bytes, /*fetch=*/false);
  parts[0].write(99);
  memory.release(parts[0].bytes, /*changed=*/true);
  memory.settle();
  CHECK(parts[0].has(99));
  CHECK(memory.traffic().read == before.read + int64_t(parts[0].pages()));
  memory.free(begin, kBytes);
}

TEST_CASE("memory on a disk that is freed while it moves leaves nothing behind", "[offload]") {
  const TempDir folder;
  DiskMemory memory(folder.path());
  auto* const begin = static_cast<std::byte*>(memory.allocate(64 * kPage));
  const std::span<std::byte> all(begin, 64 * kPage);
  memory.prefetch(all);
  memory.free(begin, all.size());
  CHECK(memory.resident_bytes() == 0);
  auto* const again = static_cast<std::byte*>(memory.allocate(64 * kPage));
  CHECK(std::all_of(again, again + all.size(), [](std::byte b) { return b == std::byte{0}; }));
  memory.acquire({again, all.size()});
  memory.release({again, all.size()}, /*changed=*/true);  // the destructor waits for this write
}

TEST_CASE("memory on a disk may be written if it was acquired, or not touched since settle()",
          "[offload]") {
  const TempDir folder;
  DiskMemory memory(folder.path());
  auto* const begin = static_cast<std::byte*>(memory.allocate(64 * kPage));
  const std::span<std::byte> all(begin, 64 * kPage), part = all.subspan(8 * kPage, 32 * kPage);
  const auto refused = [&](std::span<const std::byte> range) {
    try {
      memory.check_writable("fill", range);
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused(all).empty());
  memory.prefetch(part);
  CHECK(refused(all) ==
        "fill: writes 262144 bytes of memory on the disk that was prefetched; "
        "acquire the memory before writing to it");
  memory.acquire(part);
  CHECK(refused(all).empty());
  for (const bool changed : {true, false}) {
    CAPTURE(changed);
    memory.acquire(part);
    memory.release(part, changed);
    // Writing to the range is an error, even after a fetch of another range has evicted it.
    memory.acquire(all.first(8 * kPage));
    memory.release(all.first(8 * kPage), /*changed=*/false);
    CHECK(contains(refused(part.subspan(100, 4)),
                   "writes 4 bytes of memory on the disk that was "
                   "released; acquire the memory"));
    CHECK(refused(all.subspan(40 * kPage)).empty());
    CHECK(refused(part.subspan(100, 0)).empty());
    CHECK_THROWS_AS(memory.release(part, changed), InternalError);
    memory.settle();
    CHECK(refused(all).empty());
  }
  // A range counts as acquired if a larger range that contains it is acquired again.
  memory.acquire(part);
  memory.release(part, /*changed=*/false);
  memory.acquire(all);
  CHECK(refused(all).empty());
  memory.release(all, /*changed=*/false);
  memory.free(begin, all.size());
}

TEST_CASE("kernels and copies do not write to memory on a disk that was not acquired",
          "[offload]") {
  const TempDir folder;
  Context device(small_context(1));
  HostTier tier(device, {.folder = folder.path()});
  constexpr int64_t kCount = 64 << 10;
  const auto vector = [&](MemoryTag tag) { return tier.allocate(kCount, DType::kF32, tag, "x"); };
  const Tensor grad = vector(MemoryTag::kGradient), master = vector(MemoryTag::kOptimizer);
  const Tensor m = vector(MemoryTag::kOptimizer), v = vector(MemoryTag::kOptimizer);
  for (const Tensor& x : {grad, master, m, v}) {
    // Before the first acquire(), any memory may be written.
    kernels::fill(x.exec(), {.y = x, .value = 0});
    tier.acquire(x);
    tier.release(x, /*changed=*/true);
  }
  const Tensor from_device = full(device, {kCount}, DType::kF32, 1);
  const std::function<void()> writes[] = {
      [&] { kernels::fill(grad.exec(), {.y = grad, .value = 1}); },
      [&] { kernels::axpby(grad.exec(), {.a = m, .b = v, .y = grad}); },
      [&] { kernels::copy(grad.exec(), {.x = m, .y = grad}); },
      [&] { kernels::random_normal(grad.exec(), {.y = grad}); },
      [&] { kernels::fill(grad.exec(), {.y = vector_slice(grad, kCount / 2, 8), .value = 1}); },
      [&] { tier.download(from_device, grad, {}); },
      [&] { tier.context().copy(grad.data(), m.data(), grad.bytes()); },
      [&] { tier.context().will_write(grad.data(), grad.bytes()); },
      [&] { kernels::adamw(grad.exec(), {.master = master, .grad = grad, .m = m, .v = v}); },
      [&] { kernels::sgd(grad.exec(), {.master = master, .grad = grad}); },
      [&] { kernels::lion(grad.exec(), {.master = master, .grad = grad, .m = m}); },
  };
  for (const auto& write : writes) {
    CHECK(contains(message_of<InternalError>(write), "memory on the disk that was released"));
  }
  // A kernel fails if one of its outputs is not acquired.
  for (const Tensor& x : {master, m}) tier.acquire(x);
  CHECK(contains(message_of<InternalError>(writes[8]), "adamw: writes 262144 bytes"));
  tier.acquire(v);
  writes[8]();  // the gradient need not be acquired, as this kernel only reads it
  // A kernel is refused if its outputs are not known.
  CHECK(
      contains(message_of<InternalError>([&] { kernels::gelu_fwd(grad.exec(), {.x = m, .y = m}); }),
               "gelu_fwd: kernel_call.cpp defines no outputs"));
  tier.settle();
}

TEST_CASE("memory on a disk that cannot be names the folder", "[offload]") {
  const TempDir folder;
  CHECK(contains(message_of<MissingInputError>([&] { DiskMemory memory(folder.file("none")); }),
                 folder.file("none") + ": no such folder; create it"));
  CHECK(contains(message_of<MissingInputError>(
                     [&] { DiskMemory memory(folder.write("file", "x") + "/none"); }),
                 "no such folder"));
  DiskMemory memory(folder.path());
  CHECK(contains(message_of<DiskError>([&] { memory.allocate(size_t{1} << 60); }), "no space for"));
  std::vector<std::byte> elsewhere(4 * kPage);
  CHECK_THROWS_AS(memory.acquire(elsewhere), InternalError);
}

}  // namespace shale::test
