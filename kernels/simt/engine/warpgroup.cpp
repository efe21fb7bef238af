#include "shale/kernels/simt/engine/warpgroup.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "shale/base/dtype.h"
#include "shale/base/text.h"
#include "shale/kernels/fp8_number.h"
#include "shale/kernels/simt/engine/block.h"
#include "shale/kernels/simt/engine/report.h"
#include "shale/kernels/simt/engine/tensor_map.h"

namespace shale::emulator {
namespace {

constexpr int kRows = 64, kMostDepth = 32;  // rows of d; largest k of a matmul
constexpr int kChunkBytes = 16;             // bytes that the swizzle keeps together

int element_bytes(MmaType type) {
  return type == MmaType::kE4M3 || type == MmaType::kE5M2 ? 1 : 2;
}
int depth_of(MmaType type) {  // returns k of a matmul: the elements in 32 bytes
  return 2 * kChunkBytes / element_bytes(type);
}

// row_of() and column_of() return the position in d of register i of a thread.
int row_of(int thread, int i) {
  return thread / kWarp * 16 + thread % kWarp / 4 + i / 2 % 2 * 8;
}
int column_of(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

// ---- Operands in shared memory ----

struct Descriptor {
  uint32_t start, tile_bytes, group_bytes;
  explicit Descriptor(uint64_t bits)
      : start(field(bits)), tile_bytes(field(bits >> 16)), group_bytes(field(bits >> 32)) {}

 private:
  static uint32_t field(uint64_t bits) { return static_cast<uint32_t>(bits & 0x3fff) << 4; }
};

// Returns the offset in shared memory of the 16-byte chunk that begins at row `mn` of a (column
// `mn` of b) and at `k`.
uint32_t chunk_offset(const WgmmaOperand& operand, int mn, int k) {
  const Descriptor d(operand.descriptor);
  const auto u = [](int n) { return static_cast<uint32_t>(n); };
  if (operand.mn_major) {
    return swizzled(d.start + u(mn / 64) * d.tile_bytes + u(mn % 64) * 2 +
                    u(k / 8) * d.group_bytes + u(k % 8) * 128);
  }
  return swizzled(d.start + u(mn / 8) * d.group_bytes + u(mn % 8) * 128 +
                  u(k * element_bytes(operand.type)));
}

// Calls fn(mn, k, offset) for each 16-byte chunk of an operand. With mn_major a chunk's elements
// follow along mn, otherwise along k.
template <typename Fn>
void for_chunks(const WgmmaOperand& operand, Fn&& fn) {
  const int chunk = kChunkBytes / element_bytes(operand.type);
  const int mn_step = operand.mn_major ? chunk : 1, k_step = operand.mn_major ? 1 : chunk;
  for (int mn = 0; mn < operand.rows; mn += mn_step) {
    for (int k = 0; k < depth_of(operand.type); k += k_step) {
      fn(mn, k, chunk_offset(operand, mn, k));
    }
  }
}

float widen(MmaType type, uint16_t bits) {
  if (type == MmaType::kBF16) return std::bit_cast<float>(uint32_t{bits} << 16);
  f16 value;
  value.bits = bits;
  return static_cast<float>(value);
}

// Returns element i of a 16-byte chunk as f32.
float element(MmaType type, const std::byte* chunk, int i) {
  const auto byte = std::to_integer<uint8_t>(chunk[i]);
  if (type == MmaType::kE4M3) return kernels::decoded(kernels::e4m3{byte});
  if (type == MmaType::kE5M2) return kernels::decoded(kernels::e5m2{byte});
  uint16_t bits = 0;
  std::memcpy(&bits, chunk + 2 * i, sizeof(bits));
  return widen(type, bits);
}

// Reads all elements of an operand. to(mn, k) returns the place to store an element.
template <typename To>
void load_operand(const std::byte* arena, const WgmmaOperand& operand, To&& to) {
  const bool mn_major = operand.mn_major;
  for_chunks(operand, [&](int mn, int k, uint32_t offset) {
    for (int i = 0; i < kChunkBytes / element_bytes(operand.type); ++i) {
      to(mn_major ? mn + i : mn, mn_major ? k : k + i) = element(operand.type, arena + offset, i);
    }
  });
}

WgmmaOperand a_of(const WgmmaCall& call) {
  return {call.a_type, call.a, call.a_mn_major, kRows};
}
WgmmaOperand b_of(const WgmmaCall& call) {
  return {call.b_type, call.b, call.b_mn_major, call.columns};
}

}  // namespace

void Warpgroups::reset() {
  const auto count = static_cast<size_t>(block_.threads() / kWarpgroup);
  groups_.clear();
  groups_.resize(count);
}

Warpgroups::Warpgroup& Warpgroups::of(const Fiber& self) {
  const auto index = static_cast<size_t>(self.id / kWarpgroup);
  if (index >= groups_.size()) {
    block_.fail(Fault::kWgmma, "wgmma: the warpgroup has fewer than 128 threads");
  }
  return groups_[index];
}

void Warpgroups::issue(Fiber& self, const WgmmaCall& call, float* d, const uint32_t* a) {
  Warpgroup& group = of(self);
  if (!self.wgmma.fenced) {
    block_.fail(Fault::kWgmma, "wgmma: no wgmma_fence() since the last commit");
  }
  group.arrivals[static_cast<size_t>(self.id % kWarpgroup)] = {&self, call, d, a};
  if (++group.arrived < kWarpgroup) return block_.wait(self);
  group.arrived = 0;
  start(group, self.id / kWarpgroup * kWarpgroup);
  for (const Arrival& arrival : group.arrivals) {
    if (arrival.fiber != &self) block_.wake(*arrival.fiber);
  }
}

void Warpgroups::check_arrivals(const Warpgroup& group) {
  const WgmmaCall& call = group.arrivals[0].call;
  for (const Arrival& arrival : group.arrivals) {
    if (arrival.call == call) continue;
    block_.fail(Fault::kWgmma, cat("wgmma: threads ", group.arrivals[0].fiber->id, " and ",
                                   arrival.fiber->id, " disagree on its operands"));
  }
  const auto check = [&](const char* name, uint64_t bits, bool mn_major) {
    // Bits 4 to 6 of the start address of a k_major operand select one of four 32-byte parts of a
    // line.
    const uint32_t start = Descriptor(bits).start, tile = mn_major ? start : start & ~0x70u;
    if (bits >> 62 == 1 && tile % 1024 == 0) return;
    std::string text =
        cat("wgmma: ", name, " at ", block_.shared().describe(start),
            " is not a tile with 128-byte swizzle at an address that is a multiple of 1024");
    block_.fail(Fault::kWgmma, std::move(text));
  };
  if (!call.a_in_registers) check("a", call.a, call.a_mn_major);
  check("b", call.b, call.b_mn_major);
}

// Returns the accumulator for the warpgroup's next matmul. If no matmul in flight uses these
// registers, makes a new one: reads their values and sets the registers to NaN.
std::shared_ptr<Warpgroups::Accumulator> Warpgroups::take_accumulator(Warpgroup& group) {
  const WgmmaCall& call = group.arrivals[0].call;
  for (const auto& d : group.accumulators) {
    const bool same = std::equal(group.arrivals.begin(), group.arrivals.end(), d->registers.begin(),
                                 [](const Arrival& a, const float* own) { return a.d == own; });
    const bool some_gave_back =
        std::any_of(d->given_back.begin(), d->given_back.end(), [](bool yes) { return yes; });
    if (same && d->columns == call.columns && !some_gave_back) return d;
    if (d->registers[0] != group.arrivals[0].d) continue;
    block_.fail(Fault::kWgmma,
                "wgmma: these accumulators belong to an unfinished wgmma of another shape, or only "
                "some threads of the warpgroup have waited for that wgmma");
  }
  auto d = std::make_shared<Accumulator>();
  d->columns = call.columns;
  d->sums.resize(static_cast<size_t>(kRows * call.columns));
  const int count = call.columns / 2;
  for (int thread = 0; thread < kWarpgroup; ++thread) {
    float* own = d->registers[static_cast<size_t>(thread)] =
        group.arrivals[static_cast<size_t>(thread)].d;
    for (int i = 0; call.accumulate && i < count; ++i) {
      d->sums[static_cast<size_t>(row_of(thread, i) * call.columns + column_of(thread, i))] =
          own[i];
    }
    std::memset(own, 0xff, static_cast<size_t>(count) * sizeof(float));
  }
  group.accumulators.push_back(d);
  return d;
}

void Warpgroups::track_operand(Warpgroup& group, const std::vector<int>& threads,
                               const WgmmaOperand& operand) {
  for_chunks(operand, [&](int, int, uint32_t offset) {
    if (!block_.shared().allocated(offset, kChunkBytes)) {
      std::string text = cat("wgmma: an operand reaches ", block_.shared().describe(offset),
                             ", outside the block's shared memory");
      block_.fail(Fault::kOutOfBounds, std::move(text));
    }
    block_.tracker().product_reads(group.engine, threads, offset, kChunkBytes);
  });
}

// Records which registers of a thread the matmul uses. `index`: the thread's number in the
// warpgroup.
void Warpgroups::take_registers(const Arrival& arrival, uint64_t number, Product& product,
                                size_t index) {
  WgmmaThread& own = arrival.fiber->wgmma;
  arrival.fiber->multiplies = true;
  const auto same = [&](const WgmmaThread::D& d) { return d.registers == arrival.d; };
  if (const auto d = std::find_if(own.d.begin(), own.d.end(), same); d != own.d.end()) {
    d->last = number;
  } else {
    own.d.push_back({number, arrival.d, static_cast<size_t>(product.call.columns) / 2});
  }
  if (!product.call.a_in_registers) return;
  std::copy_n(arrival.a, 4, product.a[index].begin());
  own.a.push_back({number, arrival.a, product.a[index]});
}

void Warpgroups::start(Warpgroup& group, int first_thread) {
  check_arrivals(group);
  Tracker& tracker = block_.tracker();
  if (group.engine < 0) {
    group.engine = tracker.add_engine(EngineKind::kWgmma, first_thread / kWarpgroup);
  }
  Product product;
  product.call = group.arrivals[0].call;
  product.d = take_accumulator(group);
  product.d->last = ++group.issued;
  for (size_t i = 0; i < kWarpgroup; ++i)
    take_registers(group.arrivals[i], group.issued, product, i);
  const std::vector<int> threads =
      tracker.different_knowledge(group.arrivals[0].fiber->actor, kWarpgroup);
  if (!product.call.a_in_registers) track_operand(group, threads, a_of(product.call));
  track_operand(group, threads, b_of(product.call));
  // the n-th matmul, counted from 1, reads at time n of the engine's clock
  tracker.tick(group.engine);
  group.under_way.push_back(std::move(product));
}

void Warpgroups::carry_out(const Product& product) {
  const WgmmaCall& call = product.call;
  const std::byte* arena = block_.shared().data();
  float a[kRows][kMostDepth], b[kMostDepth][256];
  if (call.a_in_registers) {
    for (size_t thread = 0; thread < kWarpgroup; ++thread) {
      for (int i = 0; i < 4; ++i) {
        const uint32_t pair = product.a[thread][static_cast<size_t>(i)];
        const int t = static_cast<int>(thread);
        float* to = &a[row_of(t, 2 * (i % 2))][t % 4 * 2 + i / 2 * 8];
        to[0] = widen(call.a_type, static_cast<uint16_t>(pair));
        to[1] = widen(call.a_type, static_cast<uint16_t>(pair >> 16));
      }
    }
  } else {
    load_operand(arena, a_of(call), [&](int row, int k) -> float& { return a[row][k]; });
  }
  load_operand(arena, b_of(call), [&](int column, int k) -> float& { return b[k][column]; });
  // The products are exact in f32 and are added in order of k, as in the emulator's mma.
  if (!call.accumulate) std::fill(product.d->sums.begin(), product.d->sums.end(), 0.0f);
  for (int row = 0; row < kRows; ++row) {
    float* sums = product.d->sums.data() + row * call.columns;
    for (int k = 0; k < depth_of(call.a_type); ++k) {
      for (int column = 0; column < call.columns; ++column)
        sums[column] += a[row][k] * b[k][column];
    }
  }
}

// When a thread waits, checks that its registers with operand a have not changed since the matmul
// was issued.
void Warpgroups::check_a(Fiber& self, uint64_t until) {
  std::erase_if(self.wgmma.a, [&](const WgmmaThread::A& a) {
    if (a.number > until) return false;
    if (!std::equal(a.was.begin(), a.was.end(), a.registers)) {
      block_.fail(Fault::kWgmma, "wgmma: registers of a were changed before wgmma_wait()");
    }
    return true;
  });
}

void Warpgroups::commit(Fiber& self) {
  self.wgmma.fenced = false;
  self.wgmma.committed = of(self).issued;
  self.wgmma.groups.push_back(self.wgmma.committed);
}

void Warpgroups::wait(Fiber& self, size_t newest) {
  std::vector<uint64_t>& mine = self.wgmma.groups;
  if (mine.size() <= newest) return;
  Warpgroup& group = of(self);
  const uint64_t until = mine[mine.size() - newest - 1];
  mine.erase(mine.begin(), mine.end() - static_cast<ptrdiff_t>(newest));
  for (; group.done < until; ++group.done) {
    carry_out(group.under_way.front());
    group.under_way.pop_front();
  }
  check_a(self, until);
  std::erase_if(self.wgmma.d, [&](const WgmmaThread::D& d) { return d.last <= until; });
  self.multiplies = !self.wgmma.d.empty();
  give_back(self, group, until);
  if (group.engine < 0) return;
  if (group.clock_until != until) {
    group.clock.clear();
    block_.tracker().release_time(group.engine, static_cast<uint32_t>(until), group.clock);
    group.clock_until = until;
  }
  block_.tracker().learn(self.actor, group.clock);
}

void Warpgroups::give_back(Fiber& self, Warpgroup& group, uint64_t until) {
  const int thread = self.id % kWarpgroup;
  const auto index = static_cast<size_t>(thread);
  for (const auto& d : group.accumulators) {
    if (d->last > until || d->given_back[index]) continue;
    float* own = d->registers[index];
    for (int i = 0; i < d->columns / 2; ++i) {
      if (std::bit_cast<uint32_t>(own[i]) != UINT32_MAX) {
        block_.fail(Fault::kWgmma, "wgmma: accumulators were written before wgmma_wait()");
      }
      own[i] = d->sums[static_cast<size_t>(row_of(thread, i) * d->columns + column_of(thread, i))];
    }
    d->given_back[index] = true;
  }
  std::erase_if(group.accumulators, [](const auto& d) {
    return std::all_of(d->given_back.begin(), d->given_back.end(), [](bool yes) { return yes; });
  });
}

void Warpgroups::check_registers(const Fiber& self, const void* p, size_t bytes, Access kind,
                                 const void* instruction) {
  const auto* begin = static_cast<const std::byte*>(p);
  const auto within = [&](const void* registers, size_t count) {
    const auto* first = static_cast<const std::byte*>(registers);
    return begin < first + count * sizeof(uint32_t) && first < begin + bytes;
  };
  const WgmmaThread& own = self.wgmma;
  const bool is_d = std::any_of(own.d.begin(), own.d.end(), [&](const WgmmaThread::D& d) {
    return within(d.registers, d.count);
  });
  const bool is_a = std::any_of(own.a.begin(), own.a.end(), [&](const WgmmaThread::A& a) {
    return within(a.registers, a.was.size());
  });
  if (!is_d && !is_a) return;
  std::string text = cat("wgmma: this thread ", verb(kind), " ", bytes, " bytes of ",
                         is_d ? "accumulators" : "a's registers", " before their wgmma_wait()",
                         " (instruction ", describe_instruction(instruction), ")");
  block_.fail(Fault::kWgmma, std::move(text));
}

void Warpgroups::finish(Fiber& self) {
  const bool has_group = static_cast<size_t>(self.id / kWarpgroup) < groups_.size();
  if (self.wgmma.groups.empty() && (!has_group || of(self).issued == self.wgmma.committed)) return;
  block_.fail(Fault::kWgmma, "the thread ends with wgmma that it has not waited for");
}

void wgmma(const WgmmaCall& call, float* d, const uint32_t* a, Site site) {
  Fiber& self = enter("wgmma", site);
  self.block->warpgroups().issue(self, call, d, a);
}

void wgmma_fence() {
  t_fiber->wgmma.fenced = true;
}

void wgmma_commit(Site site) {
  Fiber& self = enter("wgmma_commit", site);
  self.block->warpgroups().commit(self);
}

void wgmma_wait(int newest) {
  Fiber& self = enter("wgmma_wait", t_fiber->site);
  self.block->warpgroups().wait(self, static_cast<size_t>(newest));
}

}  // namespace shale::emulator
