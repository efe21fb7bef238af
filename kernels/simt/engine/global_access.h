#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "shale/kernels/simt/engine/access.h"
#include "shale/kernels/simt/engine/block_order.h"
#include "shale/kernels/simt/engine/fault.h"
#include "shale/kernels/simt/engine/global_memory.h"

namespace shale::emulator {

class Block;

// Data that the checks of global memory share among the blocks of one launch.
struct GlobalLaunch {
  std::shared_ptr<const GlobalTable> table{};
  uint16_t number = 0;
  bool several_workers = false;
  BlockOrder order{};
};

// Checks a block's accesses to global memory, to the byte. The block fails if an access is not
// within an allocation. For allocations whose elements are watched (GlobalMemory), it also fails if
// it reads an element that was never written, or if another block of the launch accesses the same
// element, one of the two writes, and they are neither both atomic nor ordered (BlockOrder).
//
// The checks do not find: conflicts between threads of one block, or between launches, which run
// one after the other here; fences by the wrong thread of a block, because order is kept per block;
// late writes of a block that fences more than 1023 times; conflicts of blocks whose numbers differ
// by a multiple of 2^18 - 2; simultaneous accesses to overlapping bytes that begin at different
// addresses. Which block of a pair is reported depends on the order in which they run.
class GlobalAccess {
 public:
  explicit GlobalAccess(Block& block) : block_(block) {}

  // If `launch` is null, the allocations are unknown and the block's accesses are not checked.
  // Without `track` plain accesses are not seen, and only bounds are checked.
  void begin_block(GlobalLaunch* launch, uint64_t block, uint64_t blocks, bool track);
  void end_block() { launch_ = nullptr; }
  bool on() const { return launch_ != nullptr; }

  // Called by instrumented code for a load or store of the current thread outside shared memory.
  // Local variables, kernel arguments and constants of the program are not global memory.
  void plain_access(const void* p, size_t bytes, Access kind, const void* instruction) {
    if (stacks_.offset(p) < stacks_.bytes || !on()) return;
    const Line& line = line_of(p);
    if (!line.has(p, bytes)) return look_up(p, bytes, kind, instruction);
    if (line.cells != nullptr && tracks_) track(line, p, bytes, kind, instruction);
  }
  // Called by a primitive that accesses [p, p + bytes), which must be global memory.
  void access(const void* p, size_t bytes, Access kind);

  // ---- Order between blocks ----
  void fence();
  // Called before and after an atomic operation at `place`.
  void before_atomic(const void* place);
  void after_atomic(const void* place);

 private:
  // Cached result of a lookup: the allocation, or other memory, that contains an address.
  struct Line {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    GlobalCell* cells = nullptr;  // null: accesses are not tracked
    int element_shift = 0;
    bool is_global = false;

    size_t offset(const void* p) const {
      return static_cast<size_t>(static_cast<const std::byte*>(p) - begin);
    }
    bool has(const void* p, size_t count) const {
      return offset(p) < bytes && count <= bytes - offset(p);
    }
  };
  enum class Finding : uint8_t { kNone, kUnwritten, kWritten, kChanged, kRead };
  // Result of an access for one cell: the cell's new value, and the error found.
  struct Step {
    GlobalCell after = 0;
    Finding finding = Finding::kNone;
    uint32_t other = 0;  // the other block of a conflict
  };
  static constexpr size_t kLines = 128, kLineBytes = 4096;

  Line& line_of(const void* p) {
    return lines_[reinterpret_cast<uintptr_t>(p) / kLineBytes % kLines];
  }
  bool find_allocation(const void* p, size_t bytes, Access kind, const void* instruction);
  void look_up(const void* p, size_t bytes, Access kind, const void* instruction);
  void track(const Line& line, const void* p, size_t bytes, Access kind, const void* instruction);
  Step change_cells(GlobalCell* cells, size_t count, Access kind) const;
  Step step(GlobalCell cell, Access kind) const;
  bool ordered(uint32_t other, uint32_t epoch) const;
  void begin_epoch(uint32_t epoch);
  std::string place(const void* p) const;
  std::string name_of(uint32_t other) const;
  [[noreturn]] void report_finding(const Step& found, const void* p, size_t bytes, Access kind,
                                   const void* instruction);
  [[noreturn]] void report(Fault fault, std::string&& what, const void* instruction);
  [[noreturn]] void report_outside(const void* p, size_t bytes, Access kind,
                                   const void* instruction);

  Block& block_;
  GlobalLaunch* launch_ = nullptr;
  std::shared_ptr<const GlobalTable> table_{};  // allocations that lines_ refer to
  uint16_t number_ = 0;
  std::array<Line, kLines> lines_{};
  Line stacks_{};  // stacks of the block's threads, the most accessed memory
  bool tracks_ = false;
  uint32_t me_ = 0, blocks_ = 0;
  GlobalCell written_by_me_ = 0;  // cell value for a plain write by this block
  uint32_t epoch_ = 0;            // number of this block's fences
  BlockClock read_{};             // acquired by atomic operations since the last fence
  BlockClock seen_{};
};

}  // namespace shale::emulator
