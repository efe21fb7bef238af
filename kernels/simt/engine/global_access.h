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

// What the blocks of one launch share of global memory.
struct GlobalLaunch {
  std::shared_ptr<const GlobalTable> table{};
  uint16_t number = 0;
  bool several_workers = false;
  BlockOrder order{};
};

// Looks at a block's accesses to global memory and fails the block when one is not within an
// allocation, to the byte; and of an allocation whose elements are watched (GlobalMemory), when it
// reads one that nobody has written, and when another block of the launch accesses the same one,
// one of the two writes, and they are neither both atomic nor ordered (BlockOrder).
//
// Not found: conflicts between threads of one block, nor those between launches, which run one
// after the other here; a block in which the wrong thread fences, since order is kept for blocks;
// late writes of a block that fences more than 1023 times; blocks that are a multiple of 2^18 - 2
// apart; two that at the same instant access overlapping bytes that begin at different ones. Which
// block of a pair is reported depends on the order in which they run.
class GlobalAccess {
 public:
  explicit GlobalAccess(Block& block) : block_(block) {}

  // `launch` null: nobody knows what memory there is, and nothing is looked at. Without `track`
  // (plain accesses are not seen) bounds are all that is checked.
  void begin_block(GlobalLaunch* launch, uint64_t block, uint64_t blocks, bool track);
  void end_block() { launch_ = nullptr; }
  bool on() const { return launch_ != nullptr; }

  // A plain access of the current thread outside shared memory, from instrumented code. What is the
  // thread's own, an argument or a constant of the program is no global memory.
  void plain_access(const void* p, size_t bytes, Access kind, const void* instruction) {
    if (stacks_.offset(p) < stacks_.bytes || !on()) return;
    const Line& line = line_of(p);
    if (!line.has(p, bytes)) return look_up(p, bytes, kind, instruction);
    if (line.cells != nullptr && tracks_) track(line, p, bytes, kind, instruction);
  }
  // An access by a primitive, which takes global memory only.
  void access(const void* p, size_t bytes, Access kind);

  // ---- What orders blocks ----
  void fence();
  // Around an atomic operation.
  void before_atomic(const void* place);
  void after_atomic(const void* place);

 private:
  // What was found last for addresses of this line: an allocation, or memory of another kind.
  struct Line {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    GlobalCell* cells = nullptr;  // null: not watched
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
  // A cell after an access, and what is wrong with that.
  struct Step {
    GlobalCell after = 0;
    Finding finding = Finding::kNone;
    uint32_t other = 0;  // the block
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
  std::shared_ptr<const GlobalTable> table_{};  // that lines_ are of, in this launch
  uint16_t number_ = 0;
  std::array<Line, kLines> lines_{};
  Line stacks_{};  // where most of what threads access is
  bool tracks_ = false;
  uint32_t me_ = 0, blocks_ = 0;
  GlobalCell written_by_me_ = 0;  // a cell that this block has written plainly
  uint32_t epoch_ = 0;            // how often it has fenced
  BlockClock read_{};             // by its atomic operations, and no fence has followed
  BlockClock seen_{};
};

}  // namespace shale::emulator
