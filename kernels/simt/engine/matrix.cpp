#include "shale/kernels/simt/engine/matrix.h"

#include <bit>
#include <cstring>

#include "shale/base/dtype.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kRowBytes = 16;  // bytes in a row of an 8x8 matrix of 16-bit elements

// ---- ldmatrix, stmatrix ----

struct MatrixAccess {
  std::byte* row;
  uint32_t registers[4];
  int count;
  bool transposed;
};

// Calls fn for all elements of the 8x8 matrices. Element (row, column) of a matrix is half `column
// % 2` of a register of lane 4 row + column / 2, with row and column swapped when transposed.
template <typename Fn>
void for_elements(void* const* payloads, Fn&& fn) {
  const auto& any = *static_cast<const MatrixAccess*>(payloads[0]);
  for (int matrix = 0; matrix < any.count; ++matrix) {
    for (int row = 0; row < 8; ++row) {
      std::byte* memory = static_cast<const MatrixAccess*>(payloads[matrix * 8 + row])->row;
      for (int column = 0; column < 8; ++column) {
        const int major = any.transposed ? column : row, minor = any.transposed ? row : column;
        auto& holder = *static_cast<MatrixAccess*>(payloads[major * 4 + minor / 2]);
        fn(memory + column * 2, holder.registers[matrix], minor % 2 * 16);
      }
    }
  }
}

void combine_load(Block&, uint32_t, void* const* payloads) {
  for_elements(payloads, [](const std::byte* element, uint32_t& reg, int shift) {
    uint16_t bits = 0;
    std::memcpy(&bits, element, sizeof(bits));
    reg = (reg & ~(0xffffu << shift)) | uint32_t{bits} << shift;
  });
}

void combine_store(Block&, uint32_t, void* const* payloads) {
  for_elements(payloads, [](std::byte* element, const uint32_t& reg, int shift) {
    const auto bits = static_cast<uint16_t>(reg >> shift);
    std::memcpy(element, &bits, sizeof(bits));
  });
}

// Checks the access to the matrix row whose address this lane provides.
void check_row(Fiber& self, const MatrixAccess& access, Access kind, const char* name) {
  if (self.lane >= access.count * 8) return;
  Block& block = *self.block;
  const uint32_t offset = block.shared().check(access.row, kRowBytes, kRowBytes, name);
  block.tracker().access(self.actor, offset, kRowBytes, kind);
}

constexpr WarpOperation kLoads[] = {
    {"ldmatrix.x1", combine_load}, {"ldmatrix.x2", combine_load}, {"ldmatrix.x4", combine_load}};
constexpr WarpOperation kStores[] = {
    {"stmatrix.x1", combine_store}, {"stmatrix.x2", combine_store}, {"stmatrix.x4", combine_store}};

// ---- mma ----

struct Mma {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

float widen(MmaType type, uint32_t bits16) {
  if (type == MmaType::kBF16) return std::bit_cast<float>(bits16 << 16);
  f16 value;
  value.bits = static_cast<uint16_t>(bits16);
  return static_cast<float>(value);
}

// The operands of an mma as matrices. Lane 4 group + t has in register i:
//   a: rows group + 8 (i % 2), columns 2t and 2t + 1 (+ 8 if i >= 2); tf32: column t (+ 4)
//   b: rows 2t and 2t + 1 (+ 8 i), column group;                      tf32: row t (+ 4 i)
//   d: row group + 8 (i / 2), column 2t + i % 2
struct Operands {
  float a[16][16], b[16][8], d[16][8];
};

void gather_16(MmaType type, const Mma& lane, int group, int t, Operands& m) {
  for (int i = 0; i < 4; ++i) {
    float* at = &m.a[group + 8 * (i % 2)][2 * t + 8 * (i / 2)];
    at[0] = widen(type, lane.a[i] & 0xffffu);
    at[1] = widen(type, lane.a[i] >> 16);
  }
  for (int i = 0; i < 2; ++i) {
    m.b[2 * t + 8 * i][group] = widen(type, lane.b[i] & 0xffffu);
    m.b[2 * t + 8 * i + 1][group] = widen(type, lane.b[i] >> 16);
  }
}

void gather_tf32(const Mma& lane, int group, int t, Operands& m) {
  // The hardware ignores the 13 bits that tf32 does not have.
  const auto tf32 = [](uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); };
  for (int i = 0; i < 4; ++i) m.a[group + 8 * (i % 2)][t + 4 * (i / 2)] = tf32(lane.a[i]);
  for (int i = 0; i < 2; ++i) m.b[t + 4 * i][group] = tf32(lane.b[i]);
}

// Products of two such numbers are exact in f32. The hardware adds them with fewer roundings, in an
// unspecified order; the emulator adds them in order of k.
template <MmaType kType>
void combine_mma(Block&, uint32_t, void* const* payloads) {
  constexpr int kDepth = kType == MmaType::kTF32 ? 8 : 16;
  Operands m;
  for (int lane = 0; lane < kWarp; ++lane) {
    const Mma& own = *static_cast<const Mma*>(payloads[lane]);
    const int group = lane / 4, t = lane % 4;
    if constexpr (kType == MmaType::kTF32) {
      gather_tf32(own, group, t, m);
    } else {
      gather_16(kType, own, group, t, m);
    }
    for (int i = 0; i < 4; ++i) m.d[group + 8 * (i / 2)][2 * t + i % 2] = own.d[i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      for (int column = 0; column < 8; ++column) m.d[row][column] += m.a[row][k] * m.b[k][column];
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* d = static_cast<const Mma*>(payloads[lane])->d;
    for (int i = 0; i < 4; ++i) d[i] = m.d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

constexpr WarpOperation kMmas[] = {{"mma.bf16", combine_mma<MmaType::kBF16>},
                                   {"mma.f16", combine_mma<MmaType::kF16>},
                                   {"mma.tf32", combine_mma<MmaType::kTF32>}};

}  // namespace

void load_matrix(uint32_t* registers, const void* row, int count, bool transposed, Site site) {
  const WarpOperation& operation = kLoads[count / 2];
  MatrixAccess access = {
      const_cast<std::byte*>(static_cast<const std::byte*>(row)), {}, count, transposed};
  check_row(enter(operation.name, site), access, Access::kRead, operation.name);
  warp_collective(kAllLanes, operation, &access, site);
  for (int i = 0; i < count; ++i) registers[i] = access.registers[i];
}

void store_matrix(void* row, const uint32_t* registers, int count, bool transposed, Site site) {
  const WarpOperation& operation = kStores[count / 2];
  MatrixAccess access = {static_cast<std::byte*>(row), {}, count, transposed};
  for (int i = 0; i < count; ++i) access.registers[i] = registers[i];
  check_row(enter(operation.name, site), access, Access::kWrite, operation.name);
  warp_collective(kAllLanes, operation, &access, site);
}

void mma(MmaType type, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site) {
  Mma payload = {d, a, b};
  warp_collective(kAllLanes, kMmas[static_cast<size_t>(type)], &payload, site);
}

}  // namespace shale::emulator
