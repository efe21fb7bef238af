#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "shale/kernels/simt/engine/mapping.h"

namespace shale::emulator {

// State of one element of global memory (see GlobalAccess). Zero: not accessed yet.
using GlobalCell = uint64_t;
inline constexpr GlobalCell kWrittenCell = GlobalCell{1} << 47;  // written since its allocation
inline constexpr int kLaunchShift = 48;                          // the launch number has 16 bits

// An allocation. If its accesses are tracked, it has a cell for each element of 2^element_shift
// bytes.
struct GlobalRange {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  int element_shift = 0;
  std::shared_ptr<Mapping> shadow{};

  GlobalCell* cells() const {
    return shadow == nullptr ? nullptr : reinterpret_cast<GlobalCell*>(shadow->data());
  }
};
using GlobalTable = std::vector<GlobalRange>;  // sorted by address

// The global memory of an emulated device, as reported by its allocator: it is host memory, so
// nothing else knows where an allocation ends. If a device has allocations, its kernels may access
// only those. If it has none, accesses are not checked, so that kernels can work on a test's own
// variables. Thread-safe.
class GlobalMemory {
 public:
  // [p, p + bytes) must not overlap another allocation. The caller owns it until remove(p). add()
  // only records the bounds. add_watched() also tracks the accesses to each element; at first no
  // element counts as written. This takes eight bytes per element. `element_bytes`: 1, 2, 4 or 8;
  // blocks must not share an element.
  void add(const void* p, size_t bytes);
  void add_watched(const void* p, size_t bytes, size_t element_bytes);
  void remove(const void* p) noexcept;  // does nothing if p was not added
  // Records that the host has written to [p, p + bytes), which may be part of an allocation.
  void written(const void* p, size_t bytes);

  // Returns all allocations; null if the device has had none so far.
  std::shared_ptr<const GlobalTable> table();
  // Returns a launch number that no cell holds.
  uint16_t next_launch();

 private:
  void insert(GlobalRange range);

  mutable std::mutex mutex_;
  bool told_ = false;
  std::map<const std::byte*, GlobalRange> ranges_;
  std::shared_ptr<const GlobalTable> table_{};  // null: must be rebuilt from ranges_
  uint16_t launches_ = 0;
};

// Returns the allocation that contains p, or null.
const GlobalRange* find_range(const GlobalTable& table, const void* p);

}  // namespace shale::emulator
