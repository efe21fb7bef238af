#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "shale/kernels/simt/engine/mapping.h"

namespace shale::emulator {

// What is known of one element of global memory; see GlobalAccess. Zero: nothing.
using GlobalCell = uint64_t;
inline constexpr GlobalCell kWrittenCell = GlobalCell{1} << 47;  // since it was allocated
inline constexpr int kLaunchShift = 48;                          // the launch, 16 bits

// An allocation, and a cell for each element of it, of 2^element_shift bytes, or none.
struct GlobalRange {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  int element_shift = 0;
  std::shared_ptr<Mapping> shadow{};

  GlobalCell* cells() const {
    return shadow == nullptr ? nullptr : reinterpret_cast<GlobalCell*>(shadow->data());
  }
};
using GlobalTable = std::vector<GlobalRange>;  // by address

// The global memory of an emulated device, as whoever allocates it tells: memory is the host's, so
// nothing else says where an allocation ends. Kernels of a device that was told of some may touch
// only that; one that was told of none is not held to anything, for kernels on a test's own
// variables. Safe for several threads.
class GlobalMemory {
 public:
  // [p, p + bytes) overlaps no other allocation. It stays the caller's, up to remove(p). What is
  // known of it is where it ends; with add_watched() also who writes and reads each element, none
  // of which has been written so far. That takes eight bytes for each. `element_bytes`: 1, 2, 4 or
  // 8; blocks may share none of them.
  void add(const void* p, size_t bytes);
  void add_watched(const void* p, size_t bytes, size_t element_bytes);
  void remove(const void* p) noexcept;  // nothing if p was not added
  // The host has written there, which may be part of an allocation.
  void written(const void* p, size_t bytes);

  // All there is now; null if the device was told of none so far.
  std::shared_ptr<const GlobalTable> table();
  // A number for a launch, which cells of others do not have.
  uint16_t next_launch();

 private:
  void insert(GlobalRange range);

  mutable std::mutex mutex_;
  bool told_ = false;
  std::map<const std::byte*, GlobalRange> ranges_;
  std::shared_ptr<const GlobalTable> table_{};  // null: to be made
  uint16_t launches_ = 0;
};

// The allocation that p lies in, or null.
const GlobalRange* find_range(const GlobalTable& table, const void* p);

}  // namespace shale::emulator
