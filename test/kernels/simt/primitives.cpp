// Checks each primitive of kernels/simt against the definitions of the PTX ISA, on the emulator and
// on a GPU if there is one. The expected values are computed element by element, in integer or f64
// arithmetic. Emulated tests of kernels rely on these primitives. test/fixtures/primitives.txt has
// hashes of the expected values, which detect a change of the definitions. With
// SHALE_WRITE_GOLDEN=DIR, the test writes this file and the values.
#include "shale/test/kernels/simt/primitives.h"

#include <algorithm>
#include <cmath>

#include "shale/base/text.h"
#include "shale/test/kernels/golden.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/gpus.h"

namespace shale {
namespace {

using test::Golden;
using Words = std::vector<uint32_t>;

constexpr int kLanes = 32;

uint32_t word_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
float float_of(uint32_t word) {
  return std::bit_cast<float>(word);
}

// Returns the words of all lanes, `count` per lane, made by fn(word, lane).
template <typename Fn>
Words words(int count, Fn&& fn) {
  Words out;
  for (int i = 0; i < count; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) out.push_back(fn(i, lane));
  }
  return out;
}

uint32_t random_word(uint64_t seed, int64_t index) {
  return static_cast<uint32_t>(test::uniform_at(seed, index) * 0x1p32);
}
int small_integer(uint64_t seed, int64_t index) {
  return int(test::uniform_at(seed, index) * 17) - 8;
}

// ---- Conversions by integer arithmetic: no float is rounded here ----

// Converts f32 to a format with the given exponent and mantissa bits: to nearest, ties to even.
uint32_t narrowed(uint32_t word, int exponent_bits, int mantissa_bits) {
  const uint32_t sign = word >> 31 << (exponent_bits + mantissa_bits);
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;  // the hardware's only NaN
  if (magnitude == 0x7f800000u) return sign | infinity;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = int(magnitude >> 23);
  uint64_t mantissa = magnitude & 0x7fffffu;
  if (exponent > 0) {
    mantissa |= 0x800000u;
  } else {
    exponent = 1;
  }
  // The value is mantissa * 2^(exponent - 150). The target format counts in units of 2^unit.
  const int unit = std::max(exponent - 127, 1 - bias) - mantissa_bits;
  const int shift = unit - (exponent - 150);
  if (shift > 40) return sign;
  const uint64_t half = uint64_t{1} << (shift - 1), rest = mantissa & (2 * half - 1);
  uint64_t units = mantissa >> shift;
  units += rest > half || (rest == half && units % 2 == 1);
  const int field = unit + mantissa_bits + bias;  // exponent field of a normal number
  const uint64_t bits = (uint64_t(field - 1) << mantissa_bits) + units;
  return sign | uint32_t(std::min<uint64_t>(bits, infinity));
}

// Converts f32 to tf32: ten mantissa bits, to nearest, ties away from zero.
uint32_t to_tf32(uint32_t word) {
  if ((word & 0x7f800000u) == 0x7f800000u) return word;
  return (word + 0x1000u) & 0xffffe000u;
}

uint32_t widened_f16(uint32_t half) {
  const uint32_t sign = half >> 15 << 31, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return sign | 0x7f800000u | mantissa << 13;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, int(exponent) - 25);
  return sign | word_of(float(value));  // the conversion is exact
}

// Maps every NaN to the same one, because PTX leaves the bits of a NaN unspecified.
uint32_t one_nan_f32(uint32_t word) {
  return (word & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : word;
}

// ---- Interesting values to convert ----

Words interesting_floats() {
  return {0x00000000, 0x80000000, 0x3f800000, 0xbf800000,  // 0, -0, 1, -1
          0x7f800000, 0xff800000, 0x7fc00000, 0xff800001,  // infinities, quiet and signalling NaN
          0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,  // ties in bf16, and numbers next to one
          0x3f801000, 0x3f803000, 0x3f801001, 0x3f800fff,  // the same ties, in f16 and in tf32
          // The largest f16, and numbers that round to it or beyond.
          0x477fe000, 0x477fefff, 0x477ff000, 0x477fffff, 0x7f7f0000, 0x7f7f7fff, 0x7f7f8000,
          0x7f7fffff,  // the largest bf16, and numbers that round to it or beyond
          0x38800000, 0x387fffff, 0x33800000, 0x33000000,   // subnormal numbers in f16
          0x33000001, 0x00000001, 0x007fffff, 0x00800000};  // subnormal numbers in f32
}

// ---- The primitives ----

// Returns a half of a matrix. Register m of a lane has two halves of matrix m or of its transpose:
// those in row lane / 4, at columns 2 (lane % 4) and 2 (lane % 4) + 1. A matrix has 8 rows of 8
// halves, two per word.
uint32_t matrix_half(const Words& tile, int matrix, int row, int column) {
  return tile[size_t(matrix * 32 + row * 4 + column / 2)] >> (column % 2 * 16) & 0xffffu;
}

void add_matrix_moves(std::vector<Golden>& out) {
  for (const bool transposed : {false, true}) {
    for (const int count : {1, 2, 4}) {
      const Words tile =
          words(count, [&](int i, int lane) { return random_word(1, i * 32 + lane); });
      const Words registers = words(count, [&](int m, int lane) {
        const int row = lane / 4, column = lane % 4 * 2;
        if (!transposed) {
          return matrix_half(tile, m, row, column) | matrix_half(tile, m, row, column + 1) << 16;
        }
        return matrix_half(tile, m, column, row) | matrix_half(tile, m, column + 1, row) << 16;
      });
      const std::string suffix = cat(" x", count, transposed ? " transposed" : "");
      out.push_back({"ldmatrix" + suffix, tile, registers});
      out.push_back({"stmatrix" + suffix, registers, tile});
    }
  }
}

// Tests d [16, 8] += a [16, depth] b [depth, 8] with small integers, whose sums are exact in any
// order. Elements of fragments have the numbers of the PTX ISA, "Matrix Fragments for mma".
struct Place {
  int row, column;
};
Place place_d(int i, int lane) {
  return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}
Place place_a16(int i, int lane) {
  const bool upper = i < 2 || (i >= 4 && i < 6);
  return {lane / 4 + (upper ? 0 : 8), lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Place place_b16(int i, int lane) {
  return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane / 4};
}
Place place_a8(int i, int lane) {
  return {lane / 4 + (i % 2 == 0 ? 0 : 8), lane % 4 + (i < 2 ? 0 : 4)};
}
Place place_b8(int i, int lane) {
  return {lane % 4 + 4 * i, lane / 4};
}

int element_a(Place p) {
  return small_integer(2, p.row * 16 + p.column);
}
int element_b(Place p) {
  return small_integer(3, p.row * 8 + p.column);
}
int element_d(Place p) {
  return 10 * small_integer(4, p.row * 8 + p.column);
}

Words product(int depth) {
  return words(4, [&](int i, int lane) {
    const Place at = place_d(i, lane);
    int sum = element_d(at);
    for (int k = 0; k < depth; ++k) sum += element_a({at.row, k}) * element_b({k, at.column});
    return word_of(float(sum));
  });
}

// Returns the fragments for 16-bit operands. `half` gives the bits of a small integer.
template <typename Half>
Words fragments_16(Half&& half) {
  return words(10, [&](int i, int lane) {
    if (i < 4) return word_of(float(element_d(place_d(i, lane))));
    const auto pair = [&](auto element, auto place, int first) {
      return half(element(place(first, lane))) | half(element(place(first + 1, lane))) << 16;
    };
    return i < 8 ? pair(element_a, place_a16, 2 * (i - 4))
                 : pair(element_b, place_b16, 2 * (i - 8));
  });
}

void add_products(std::vector<Golden>& out) {
  const auto as_bf16 = [](int n) { return narrowed(word_of(float(n)), 8, 7); };
  const auto as_f16 = [](int n) { return narrowed(word_of(float(n)), 5, 10); };
  out.push_back({"mma m16n8k16 bf16", fragments_16(as_bf16), product(16)});
  out.push_back({"mma m16n8k16 f16", fragments_16(as_f16), product(16)});
  const Words fragments = words(10, [](int i, int lane) {
    if (i < 4) return word_of(float(element_d(place_d(i, lane))));
    return word_of(
        float(i < 8 ? element_a(place_a8(i - 4, lane)) : element_b(place_b8(i - 8, lane))));
  });
  out.push_back({"mma m16n8k8 tf32", fragments, product(8)});
  out.push_back({"mma m16n8k8 f32", fragments, product(8)});
}

void add_copies(std::vector<Golden>& out) {
  for (const int bytes : {4, 8, 16}) {
    const int each = bytes / 4;
    const Words in =
        words(each, [&](int i, int lane) { return random_word(5, i * 32 + lane) | 1; });
    Words want = in;
    for (size_t i = 0; i < want.size(); ++i) {
      if (i / size_t(each) % 2 == 1) want[i] = 0;
    }
    out.push_back({cat("cp.async ", bytes), in, want});
  }
}

void add_conversions(std::vector<Golden>& out) {
  const Words floats = interesting_floats();
  out.push_back({"narrow", floats, words(5, [&](int i, int lane) {
                   const uint32_t x = floats[size_t(lane)],
                                  next = floats[size_t((lane + 1) % kLanes)];
                   switch (i) {
                     case 0: return narrowed(x, 8, 7);
                     case 1: return narrowed(x, 5, 10);
                     case 2: return to_tf32(x);
                     case 3: return narrowed(x, 8, 7) | narrowed(next, 8, 7) << 16;
                     default: return narrowed(x, 5, 10) | narrowed(next, 5, 10) << 16;
                   }
                 })});
  const Words halves = words(1, [&](int, int lane) {
    const uint32_t x = floats[size_t(lane)];
    return narrowed(x, 8, 7) | narrowed(x, 5, 10) << 16;
  });
  out.push_back({"widen", halves, words(4, [&](int i, int lane) {
                   const uint32_t half = halves[size_t(lane)] >> (i / 2 * 16) & 0xffffu;
                   return i % 2 == 0 ? half << 16 : widened_f16(half);
                 })});
}

// The products need more bits than f32 has, so rounding before the addition changes the result.
void add_multiply_add(std::vector<Golden>& out) {
  const Words in = words(3, [](int i, int lane) {
    return word_of(float(1 + (i == 2 ? -1.5 : test::uniform_at(6, i * 32 + lane))));
  });
  out.push_back({"multiply and add", in, words(2, [&](int i, int lane) {
                   const double a = float_of(in[size_t(lane)]), b = float_of(in[size_t(32 + lane)]);
                   const double c = float_of(in[size_t(64 + lane)]),
                                exact = a * b;  // 48 bits: exact in f64
                   return word_of(i == 0 ? float(double(float(exact)) + c) : float(exact + c));
                 })});
}

void add_exchanges(std::vector<Golden>& out) {
  const Words in = words(1, [](int, int lane) { return random_word(7, lane); });
  const auto at = [&](int lane) { return in[size_t(lane)]; };
  out.push_back({"shuffle", in, words(7, [&](int i, int lane) {
                   switch (i) {
                     case 0: return at(5);
                     case 1: return at(lane ^ 9);
                     case 2: return at(lane + 3 < kLanes ? lane + 3 : lane);
                     case 3: return at(lane >= 3 ? lane - 3 : lane);
                     case 4: return at(lane ^ 16);
                     case 5: return ~at(lane ^ 16);
                     default: return lane < 16 ? at(lane ^ 2) : 0;
                   }
                 })});
  uint32_t odd = 0;
  for (int lane = 0; lane < kLanes; ++lane) odd |= (at(lane) & 1) << lane;
  out.push_back({"vote", in, words(4, [&](int i, int lane) {
                   switch (i) {
                     case 0: return odd;
                     case 1: return uint32_t(odd != 0);
                     case 2: return uint32_t(odd == 0xffffffffu);
                     default: return lane >= 16 ? odd & 0xffff0000u : 0;
                   }
                 })});
  Words numbers, want(10, 0);
  uint32_t sum = 0, largest = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    numbers.push_back(uint32_t(small_integer(8, lane) + 8));
    sum += numbers.back();
    largest = std::max(largest, numbers.back());
  }
  want = {word_of(float(sum)), 0u - sum, sum,     kLanes % 5, sum << 20,
          sum >> 12,           largest,  largest, 0,          1};
  out.push_back({"atomic", numbers, want});
}

std::vector<Golden> all_golden() {
  std::vector<Golden> out;
  add_matrix_moves(out);
  add_products(out);
  add_copies(out);
  add_conversions(out);
  add_multiply_add(out);
  add_exchanges(out);
  return out;
}

constexpr const char* kHead =
    "# What a warp reads and writes around each primitive, as test/kernels/simt/primitives.cu\n"
    "# says: hash of its words, how many in, how many out, name.\n";

// Returns emulated and real GPUs; there is always at least one.
std::vector<Exec> gpus() {
  std::vector<Exec> execs = test::only_gpus(test::devices_with({}));
  REQUIRE_FALSE(execs.empty());
  return execs;
}

test::RunPrimitive find_primitive(DeviceType type, std::string_view name) {
#ifdef SHALE_HAVE_CUDA
  if (type == DeviceType::kCuda) return kernels::cuda::find_primitive(name);
#endif
  return type == DeviceType::kEmu ? kernels::emu::find_primitive(name) : nullptr;
}

Words run(const Exec& exec, const std::string& name, const Words& in, size_t out_words) {
  const test::RunPrimitive primitive = find_primitive(exec.device.type, name);
  REQUIRE(primitive != nullptr);
  const test::DeviceArray<uint32_t> d_in(exec, in), out(exec, int64_t(out_words));
  primitive(exec, d_in.data(), out.data());
  CHECK(out.margins_intact());
  return out.download();
}

}  // namespace

TEST_CASE("primitives give what PTX defines", "[kernels][simt]") {
  for (const Exec& exec : gpus()) {
    for (const Golden& golden : all_golden()) {
      CAPTURE(to_string(exec.device), golden.name);
      Words got = run(exec, golden.name, golden.in, golden.want.size()), want = golden.want;
      if (golden.name == "widen") {
        for (uint32_t& word : got) word = one_nan_f32(word);
        for (uint32_t& word : want) word = one_nan_f32(word);
      }
      if (golden.name == "narrow") {  // one of the words is the tf32 of a NaN
        for (size_t i = 64; i < 96; ++i) got[i] = one_nan_f32(got[i]);
        for (size_t i = 64; i < 96; ++i) want[i] = one_nan_f32(want[i]);
      }
      for (size_t i = 0; i < want.size(); ++i) {
        CAPTURE(i / kLanes, i % kLanes, got[i], want[i]);
        REQUIRE(got[i] == want[i]);
      }
    }
  }
}

TEST_CASE("the table of primitives is what the definitions give", "[kernels][simt]") {
  test::check_table("primitives", kHead, all_golden());
}

TEST_CASE("fast functions stay within their bounds", "[kernels][simt]") {
  Words in;
  for (int lane = 0; lane < kLanes; ++lane) {
    in.push_back(word_of(float(std::ldexp(1 + test::uniform_at(9, lane), lane / 4 - 4))));
  }
  // Errors are in ulps of the result. For 2^x, the absolute error of x counts too.
  const auto error = [](uint32_t got, double want) {
    return std::abs(double(float_of(got)) - want) / std::ldexp(1, std::ilogb(want) - 23);
  };
  for (const Exec& exec : gpus()) {
    const Words out = run(exec, "approximate", in, 96);
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = float_of(in[size_t(lane)]);
      CAPTURE(to_string(exec.device), x);
      CHECK(error(out[size_t(lane)], std::exp2(x)) <= 3);
      CHECK(error(out[size_t(32 + lane)], 1 / x) <= 1.5);
      CHECK(error(out[size_t(64 + lane)], 1 / std::sqrt(x)) <= 2.5);
    }
  }
}

TEST_CASE("fast functions take subnormal numbers for zero", "[kernels][simt]") {
  const Words in(kLanes, 0x00000001);
  const Words overflow(kLanes, word_of(-130.f));  // 2^-130 would be subnormal
  for (const Exec& exec : gpus()) {
    const Words out = run(exec, "approximate", in, 96);
    CHECK(out[0] == word_of(1.f));
    CHECK(out[32] == word_of(INFINITY));
    CHECK(out[64] == word_of(INFINITY));
    CHECK(run(exec, "approximate", overflow, 96)[0] == 0);
  }
}

}  // namespace shale
