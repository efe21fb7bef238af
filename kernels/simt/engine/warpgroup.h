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

// A wgmma instruction, the same for all threads of a warpgroup; a and b by their descriptors. Both
// have 16 bits, of one type, or 8 bits.
struct WgmmaCall {
  MmaType a_type = MmaType::kBF16, b_type = MmaType::kBF16;
  int columns = 0;
  bool a_in_registers = false, a_mn_major = false, b_mn_major = false, accumulate = false;
  uint64_t a = 0, b = 0;
  friend bool operator==(const WgmmaCall&, const WgmmaCall&) = default;
};

// One of its operands in shared memory.
struct WgmmaOperand {
  MmaType type;
  uint64_t descriptor;
  bool mn_major;
  int rows;  // of a, columns of b
};

// What one thread knows of its products.
struct WgmmaThread {
  // Registers that hold a, of product `number` (from 1 on), and what was in them.
  struct A {
    uint64_t number;
    const uint32_t* registers;
    std::array<uint32_t, 4> was;
  };
  // Accumulators of products up to number `last`.
  struct D {
    uint64_t last;
    const float* registers;
    size_t count;
  };
  bool fenced = false;             // since the last commit
  std::vector<uint64_t> groups{};  // where each that it has not waited for ends
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

// The warpgroups of a block. Products are carried out when somebody waits for them, the latest that
// the hardware may; until a thread waits itself, its accumulators hold NaN.
class Warpgroups {
 public:
  explicit Warpgroups(Block& block) : block_(block) {}
  void reset();

  void issue(Fiber& self, const WgmmaCall& call, float* d, const uint32_t* a);
  void commit(Fiber& self);
  void wait(Fiber& self, size_t newest);
  // A plain access of the thread, from instrumented code: fails at what belongs to products.
  void check_registers(const Fiber& self, const void* p, size_t bytes, Access kind,
                       const void* instruction);
  void finish(Fiber& self);  // the thread ends; fails for products that were not waited for

 private:
  struct Arrival {
    Fiber* fiber = nullptr;
    WgmmaCall call{};
    float* d = nullptr;
    const uint32_t* a = nullptr;
  };
  // A d that belongs to products under way: [64, columns].
  struct Accumulator {
    int columns = 0;
    uint64_t last = 0;  // the number of products until its newest one
    std::array<float*, kWarpgroup> registers{};
    std::array<bool, kWarpgroup> given_back{};
    std::vector<float> sums{};
  };
  struct Product {
    WgmmaCall call{};
    std::shared_ptr<Accumulator> d{};
    std::array<std::array<uint32_t, 4>, kWarpgroup> a{};  // if it is in registers
  };
  struct Warpgroup {
    int arrived = 0;
    std::array<Arrival, kWarpgroup> arrivals{};
    uint64_t issued = 0, done = 0;    // products
    std::deque<Product> under_way{};  // issued - done of them
    std::vector<std::shared_ptr<Accumulator>> accumulators{};
    int engine = -1;    // the actor that stands for its products
    SyncClock clock{};  // of the products until `clock_until`
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

// What kernels call, on the current thread. `a` null: from shared memory.
void wgmma(const WgmmaCall& call, float* d, const uint32_t* a, Site site);
void wgmma_fence();
void wgmma_commit(Site site);
void wgmma_wait(int newest);

}  // namespace shale::emulator
