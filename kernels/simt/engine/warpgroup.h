#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "shale/kernels/simt/engine/access.h"
#include "shale/kernels/simt/engine/clocks.h"
#include "shale/kernels/simt/engine/matrix.h"
#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

class Block;
struct Fiber;

inline constexpr int kWarpgroup = 128;

// The arguments of a wgmma instruction, the same for all threads of a warpgroup; a and b are
// descriptors. Both operands have 16-bit elements of one type, or both have 8-bit elements.
struct WgmmaCall {
  MmaType a_type = MmaType::kBF16, b_type = MmaType::kBF16;
  int columns = 0;
  bool a_in_registers = false, a_mn_major = false, b_mn_major = false, accumulate = false;
  uint64_t a = 0, b = 0;
  friend bool operator==(const WgmmaCall&, const WgmmaCall&) = default;
};

// An operand of wgmma in shared memory.
struct WgmmaOperand {
  MmaType type;
  uint64_t descriptor;
  bool mn_major;
  int rows;  // rows of a, or columns of b
};

// State of one thread's matmuls in flight.
struct WgmmaThread {
  // Registers that hold operand a of matmul `number` (counted from 1), and their contents when it
  // started.
  struct A {
    uint64_t number;
    const uint32_t* registers;
    std::array<uint32_t, 4> was;
  };
  // Accumulator registers of this thread; `last` is the number of the newest matmul that uses them.
  struct D {
    uint64_t last;
    const float* registers;
    size_t count;
  };
  bool fenced = false;             // true: wgmma_fence() was called since the last commit
  std::vector<uint64_t> groups{};  // for each group not yet waited for: number of its last matmul
  uint64_t committed = 0;
  std::vector<A> a{};  // oldest first
  std::vector<D> d{};

  void reset() {
    d.clear();
    fenced = false;
    groups.clear();
    committed = 0;
    a.clear();
  }
};

// The warpgroups of a block. A matmul is computed when the first thread waits for it, the latest
// time that the hardware allows. Until a thread itself waits, its accumulators hold NaN.
class Warpgroups {
 public:
  explicit Warpgroups(Block& block) : block_(block) {}
  void reset();

  void issue(Fiber& self, const WgmmaCall& call, float* d, const uint32_t* a);
  void commit(Fiber& self);
  void wait(Fiber& self, size_t newest);
  // Called by instrumented code for a load or store of the thread. Fails for registers of matmuls
  // in flight.
  void check_registers(const Fiber& self, const void* p, size_t bytes, Access kind,
                       const void* instruction);
  void finish(Fiber& self);  // called at the thread's end; fails if it did not wait for its matmuls

 private:
  struct Arrival {
    Fiber* fiber = nullptr;
    WgmmaCall call{};
    float* d = nullptr;
    const uint32_t* a = nullptr;
  };
  // An accumulator d [64, columns] of matmuls in flight.
  struct Accumulator {
    int columns = 0;
    uint64_t last = 0;  // number of the newest matmul on it
    std::array<float*, kWarpgroup> registers{};
    std::array<bool, kWarpgroup> given_back{};
    std::vector<float> sums{};
  };
  struct Product {
    WgmmaCall call{};
    std::shared_ptr<Accumulator> d{};
    std::array<std::array<uint32_t, 4>, kWarpgroup> a{};  // registers of operand a, if it has any
  };
  struct Warpgroup {
    int arrived = 0;
    std::array<Arrival, kWarpgroup> arrivals{};
    // number of the last matmul issued; number of the last one computed
    uint64_t issued = 0, done = 0;
    std::deque<Product> under_way{};  // matmuls that are issued but not computed, oldest first
    std::vector<std::shared_ptr<Accumulator>> accumulators{};
    int engine = -1;    // actor that does the warpgroup's matmuls
    SyncClock clock{};  // clock of the matmuls up to `clock_until`
    uint64_t clock_until = 0;
  };

  Warpgroup& of(const Fiber& self);
  void check_arrivals(const Warpgroup& group);
  std::shared_ptr<Accumulator> take_accumulator(Warpgroup& group);
  void take_registers(const Arrival& arrival, uint64_t number, Product& product, size_t index);
  void start(Warpgroup& group, int first_thread);
  void track_operand(Warpgroup& group, const std::vector<int>& threads,
                     const WgmmaOperand& operand);
  void carry_out(const Product& product);
  void check_a(Fiber& self, uint64_t until);
  void give_back(Fiber& self, Warpgroup& group, uint64_t until);

  Block& block_;
  std::vector<Warpgroup> groups_{};
};

// Functions that kernels call; they act for the current thread. A null `a`: operand a is in shared
// memory.
void wgmma(const WgmmaCall& call, float* d, const uint32_t* a, Site site);
void wgmma_fence();
void wgmma_commit(Site site);
void wgmma_wait(int newest);

}  // namespace shale::emulator
