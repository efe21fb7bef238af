#include "shale/runtime/io/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace shale {
namespace {

// A CRC register is a linear function of its previous value and of the bytes. So three consecutive
// lanes of data can be processed in parallel. The second and third lane start with a register of
// zero. Then the register at the end of each lane is advanced by as many zero bytes as follow in
// later lanes, and the three registers are combined.

using ByteTable = std::array<uint32_t, 256>;

// Polynomials with reversed bits: CRC-32C is 0x1edc6f41, CRC-32 of zip archives 0x04c11db7.
constexpr uint32_t kPolynomial = 0x82f63b78, kZipPolynomial = 0xedb88320;
using Tables = std::array<ByteTable, 8>;

// Returns tables in which tables[k][b] is the register after byte b and then k zero bytes.
constexpr Tables make_tables(uint32_t polynomial) {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? polynomial : 0);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t state = tables[k - 1][byte];
      tables[k][byte] = (state >> 8) ^ tables[0][state & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables(kPolynomial), kZipTables = make_tables(kZipPolynomial);

uint64_t load_u64(const std::byte* data) {
  uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

template <const Tables& kOf = kTables>
uint32_t update_by_tables(uint32_t state, const std::byte* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    const uint64_t word = load_u64(data) ^ state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kOf[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; size > 0; ++data, --size) {
    state = (state >> 8) ^ kOf[0][(state ^ std::to_integer<uint32_t>(*data)) & 0xff];
  }
  return state;
}

#if defined(__x86_64__)

constexpr size_t kLaneBytes = 2048;
constexpr int kLaneDoublings = 11;
static_assert(size_t{1} << kLaneDoublings == kLaneBytes);

// A linear map of the register: element i is the image of bit i.
using BitMap = std::array<uint32_t, 32>;

constexpr uint32_t map_state(const BitMap& map, uint32_t state) {
  uint32_t result = 0;
  for (size_t bit = 0; bit < 32; ++bit) {
    if ((state >> bit & 1) != 0) result ^= map[bit];
  }
  return result;
}

// Returns tables to advance a register by kLaneBytes zero bytes. tables[k][b] is the result if byte
// k of the register is b and its other bytes are zero.
constexpr std::array<ByteTable, 4> make_lane_tables() {
  BitMap map{};  // linear map that advances the register by one zero byte
  for (size_t bit = 0; bit < 32; ++bit) {
    const uint32_t state = uint32_t{1} << bit;
    map[bit] = (state >> 8) ^ kTables[0][state & 0xff];
  }
  for (int doubling = 0; doubling < kLaneDoublings; ++doubling) {
    BitMap twice{};
    for (size_t bit = 0; bit < 32; ++bit) twice[bit] = map_state(map, map[bit]);
    map = twice;
  }
  std::array<ByteTable, 4> tables{};
  for (size_t k = 0; k < 4; ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) tables[k][byte] = map_state(map, byte << (8 * k));
  }
  return tables;
}

constexpr std::array<ByteTable, 4> kLaneTables = make_lane_tables();

uint32_t over_a_lane(uint64_t state) {
  return kLaneTables[0][state & 0xff] ^ kLaneTables[1][state >> 8 & 0xff] ^
         kLaneTables[2][state >> 16 & 0xff] ^ kLaneTables[3][state >> 24 & 0xff];
}

// Processes three lanes at a time, because the crc32 instruction has a latency of three cycles and
// a throughput of one per cycle.
__attribute__((target("sse4.2"))) uint32_t update_by_instruction(uint32_t state,
                                                                 const std::byte* data,
                                                                 size_t size) {
  uint64_t first = state;
  for (; size >= 3 * kLaneBytes; data += 3 * kLaneBytes, size -= 3 * kLaneBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      first = _mm_crc32_u64(first, load_u64(data + i));
      second = _mm_crc32_u64(second, load_u64(data + kLaneBytes + i));
      third = _mm_crc32_u64(third, load_u64(data + 2 * kLaneBytes + i));
    }
    first = over_a_lane(over_a_lane(first) ^ second) ^ third;
  }
  for (; size >= 8; data += 8, size -= 8) first = _mm_crc32_u64(first, load_u64(data));
  auto last = static_cast<uint32_t>(first);
  for (; size > 0; ++data, --size) last = _mm_crc32_u8(last, std::to_integer<uint8_t>(*data));
  return last;
}

#endif

using Update = uint32_t (*)(uint32_t state, const std::byte* data, size_t size);

Update fastest_update() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return update_by_instruction;
#endif
  return update_by_tables<>;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const Update update = fastest_update();
  return ~update(~before, bytes.data(), bytes.size());
}

uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before) {
  return ~update_by_tables(~before, bytes.data(), bytes.size());
}

uint32_t zip_crc32(std::span<const std::byte> bytes, uint32_t before) {
  return ~update_by_tables<kZipTables>(~before, bytes.data(), bytes.size());
}

}  // namespace shale
