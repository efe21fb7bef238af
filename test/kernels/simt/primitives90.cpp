// Checks Hopper's primitives against the definitions of the PTX ISA, element by element, on the
// emulator and on a GPU of compute capability 9.0 if there is one. They have not been run on such a
// GPU yet. test/fixtures/hopper_primitives.txt has hashes of the expected values, which detect a
// change of the definitions. With SHALE_WRITE_GOLDEN=DIR, the test writes this file and the values.
#include "shale/test/kernels/simt/primitives90.h"

#include <cmath>
#include <cstring>
#include <tuple>

#include "shale/base/text.h"
#include "shale/test/kernels/golden.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/gpus.h"

namespace shale {
namespace {

using test::Golden;
using test::HopperBoxes;
using test::HopperProduct;
using Words = std::vector<uint32_t>;

std::vector<Exec> hopper_devices() {
  std::vector<Exec> execs = test::only_gpus(test::devices_with({}));
  for (Exec& exec : execs) {
    if (exec.device.type == DeviceType::kEmu) exec.device.arch = 90;
  }
  return test::only_hopper(std::move(execs));
}

// Functions whose kernels are compiled for the device.
struct Primitives {
  decltype(&kernels::emu::run_hopper_boxes) run_boxes;
  decltype(&kernels::emu::run_hopper_runs) run_runs;
  decltype(&kernels::emu::find_wgmma) find_wgmma;
  decltype(&kernels::emu::find_hopper_primitive) find;
};
Primitives primitives([[maybe_unused]] const Exec& exec) {
#ifdef SHALE_HAVE_CUDA
  if (exec.device.type == DeviceType::kCuda) {
    namespace gpu = kernels::cuda;
    return {gpu::run_hopper_boxes, gpu::run_hopper_runs, gpu::find_wgmma,
            gpu::find_hopper_primitive};
  }
#endif
  namespace gpu = kernels::emu;
  return {gpu::run_hopper_boxes, gpu::run_hopper_runs, gpu::find_wgmma, gpu::find_hopper_primitive};
}

// ---- Boxes ----

// Returns the offset in shared memory of byte `byte` in line `line` of a box. Lines are
// consecutive; with the swizzle, the eight 16-byte chunks of a line are permuted by the line's
// number, in a pattern of eight lines (PTX ISA, "Tensors", "Swizzling modes", 128B).
int64_t place_in_box(const HopperBoxes& boxes, int64_t line, int64_t byte) {
  const int64_t line_bytes = boxes.box[0] * dtype_size(boxes.dtype);
  if (!boxes.swizzle) return line * line_bytes + byte;
  return line * 128 + (byte / 16 ^ line % 8) * 16 + byte % 16;
}

// Calls fn(byte of the box in shared memory, index in the array) for all elements of a box. The
// index is -1 outside the array.
template <typename Fn>
void for_box(const HopperBoxes& boxes, const std::array<int, 4>& at, Fn&& fn) {
  std::array<int, 4> box = boxes.box;
  for (int d = boxes.dims; d < 4; ++d) box[size_t(d)] = 1;
  const int64_t lines = int64_t{box[1]} * box[2] * box[3];
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t index[4] = {0, line % box[1], line / box[1] % box[2], line / (box[1] * box[2])};
    for (int x = 0; x < box[0]; ++x) {
      int64_t element = at[0] + x;
      bool inside = element >= 0 && element < boxes.sizes[0];
      for (int d = 1; d < boxes.dims; ++d) {
        const int64_t i = at[size_t(d)] + index[d];
        inside = inside && i >= 0 && i < boxes.sizes[size_t(d)];
        element += i * boxes.strides[size_t(d)];
      }
      fn(place_in_box(boxes, line, x * dtype_size(boxes.dtype)), inside ? element : -1);
    }
  }
}

int64_t box_words(const HopperBoxes& boxes) {
  int64_t elements = 1;
  for (int d = 0; d < boxes.dims; ++d) elements *= boxes.box[size_t(d)];
  return elements * dtype_size(boxes.dtype) / 4;
}
int64_t array_words(const HopperBoxes& boxes) {
  const auto last = size_t(boxes.dims - 1);
  return int64_t{boxes.sizes[last]} * boxes.strides[last] * dtype_size(boxes.dtype) / 4;
}

// Returns three kinds of boxes: inside the array, across its last edges, and across its first
// edges.
std::vector<HopperBoxes> all_boxes() {
  return {
      {DType::kBF16, 2, true, {90, 20}, {1, 96}, {64, 16}, {{{8, 2}, {40, 10}, {-24, -3}}}},
      {DType::kBF16, 2, false, {90, 20}, {1, 96}, {24, 8}, {{{3, 1}, {80, 15}, {-5, -7}}}},
      {DType::kF32, 2, true, {50, 12}, {1, 52}, {32, 8}, {{{18, 4}, {33, 9}, {-30, -1}}}},
      {DType::kF16,
       3,
       true,
       {70, 6, 5},
       {1, 72, 432},
       {64, 4, 2},
       {{{0, 1, 2}, {7, 4, 4}, {-1, -2, -1}}}},
      {DType::kBF16,
       4,
       true,
       {64, 3, 5, 2},
       {1, 64, 192, 960},
       {64, 1, 4, 1},
       {{{0, 2, 1, 1}, {0, 1, 3, 0}, {4, 0, -2, 1}}}},
      {DType::kF32,
       4,
       false,
       {12, 3, 3, 2},
       {1, 12, 36, 108},
       {8, 2, 2, 2},
       {{{4, 1, 1, 0}, {8, 2, 2, 1}, {-4, 0, -1, -1}}}},
  };
}

// Returns a name such as "tma_load 2-D bf16 swizzled, array 90x20 by 96, box 64x16, at 8,2 40,10
// -24,-3". Sizes and coordinates are in elements, innermost first. Strides begin with the second
// dimension.
std::string named(const char* what, const HopperBoxes& boxes) {
  const auto joined = [&](const std::array<int, 4>& list, const char* between, int first = 0) {
    std::string text;
    for (int d = first; d < boxes.dims; ++d) text += cat(d > first ? between : "", list[size_t(d)]);
    return text;
  };
  std::string name =
      cat(what, ' ', boxes.dims, "-D ", dtype_name(boxes.dtype), boxes.swizzle ? " swizzled" : "",
          ", array ", joined(boxes.sizes, "x"), " by ", joined(boxes.strides, ",", 1), ", box ",
          joined(boxes.box, "x"), ", at");
  for (const auto& place : boxes.places) name += " " + joined(place, ",");
  return name;
}

// Returns words whose 16-bit halves are all different and not zero.
Words counted_words(int64_t count) {
  Words words;
  for (int64_t i = 0; i < count; ++i) words.push_back(uint32_t((2 * i + 1) | (2 * i + 2) << 16));
  return words;
}

void copy_element(void* to, int64_t to_byte, const void* from, int64_t from_byte, DType dtype) {
  std::memcpy(static_cast<char*>(to) + to_byte, static_cast<const char*>(from) + from_byte,
              size_t(dtype_size(dtype)));
}

}  // namespace

// ---- Expected values by definition ----

namespace {

// Returns shared memory after the box was loaded from each of its positions; elements outside the
// array are zeros (PTX ISA, "Tensors", "Bounding box" and "Out-of-boundary access").
Golden loaded_boxes(const HopperBoxes& boxes) {
  const int64_t each = box_words(boxes), bytes = dtype_size(boxes.dtype);
  Golden golden = {named("tma_load", boxes), counted_words(array_words(boxes)),
                   Words(size_t(3 * each), 0)};
  for (size_t turn = 0; turn < 3; ++turn) {
    for_box(boxes, boxes.places[turn], [&](int64_t byte, int64_t element) {
      if (element < 0) return;
      copy_element(&golden.want[turn * size_t(each)], byte, golden.in.data(), element * bytes,
                   boxes.dtype);
    });
  }
  return golden;
}

// Returns the array after the box was stored at its first two positions. Elements of the box
// outside the array are not written.
Golden stored_boxes(const HopperBoxes& boxes) {
  const int64_t bytes = dtype_size(boxes.dtype);
  Golden golden = {named("tma_store", boxes), counted_words(box_words(boxes)),
                   Words(size_t(array_words(boxes)), test::kNotStored)};
  for (size_t turn = 0; turn < 2; ++turn) {
    for_box(boxes, boxes.places[turn], [&](int64_t byte, int64_t element) {
      if (element < 0) return;
      copy_element(golden.want.data(), element * bytes, golden.in.data(), byte, boxes.dtype);
    });
  }
  return golden;
}

Golden copied_run(bool add) {
  Golden golden = {add ? "bulk_load and bulk_add to 1.0" : "bulk_load and bulk_store", {}, {}};
  for (int i = 0; i < 256; ++i) {
    golden.in.push_back(std::bit_cast<uint32_t>(float(i - 100)));
    const float sum = float(i - 100) + std::bit_cast<float>(test::kNotStored);
    golden.want.push_back(add ? std::bit_cast<uint32_t>(sum) : golden.in.back());
  }
  return golden;
}

// Expects that every thread sees the four words of each phase: a copy of the input words, or their
// sums with the previous phase (PTX ISA, "mbarrier", "Phase of the mbarrier object").
Golden phases() {
  constexpr int kThreads = 128;
  Golden golden = {"mbarrier phases", counted_words(4 * test::kPhases), {}};
  Words words;
  for (int p = 0; p < test::kPhases; ++p) {
    for (size_t i = 0; i < 4; ++i) {
      const uint32_t before = p > 0 && p % 3 != 2 ? words[words.size() - 4] : 0;
      words.push_back(golden.in[size_t(4 * p) + i] + before);
    }
    for (size_t t = 0; t < kThreads; ++t) golden.want.push_back(words[size_t(4 * p) + t % 4]);
  }
  return golden;
}

// Expected sums. They depend on the order of rounds, so a lost or reordered round changes them.
Golden roles() {
  constexpr int kThreads = 128;
  Golden golden = {"roles", counted_words(int64_t{kThreads} * test::kRounds), {}};
  for (size_t i = 0; i < golden.in.size(); ++i) {
    golden.want.push_back(golden.in[i] + (i < kThreads ? 0 : 3 * golden.want[i - kThreads]));
  }
  return golden;
}

}  // namespace

// ---- Results of the kernels ----

TEST_CASE("tma_load brings a box in its layout, and zeros from outside", "[kernels][simt]") {
  for (const HopperBoxes& boxes : all_boxes()) {
    const Golden golden = loaded_boxes(boxes);
    const auto words = int64_t(golden.want.size());
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), golden.name);
      const test::DeviceArray<uint32_t> in(exec, golden.in), out(exec, words);
      primitives(exec).run_boxes(exec, boxes, false, in.data(), out.data(), int(words));
      CHECK(out.download() == golden.want);
      CHECK(out.margins_intact());
    }
  }
}

TEST_CASE("tma_store writes what of a box is inside the array", "[kernels][simt]") {
  for (const HopperBoxes& boxes : all_boxes()) {
    const Golden golden = stored_boxes(boxes);
    const auto words = int64_t(golden.want.size());
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), golden.name);
      const test::DeviceArray<uint32_t> in(exec, golden.in), out(exec, words);
      primitives(exec).run_boxes(exec, boxes, true, in.data(), out.data(), int(words));
      CHECK(out.download() == golden.want);
      CHECK(out.margins_intact());
    }
  }
}

TEST_CASE("bulk copies move runs of bytes, and add f32", "[kernels][simt]") {
  for (const bool add : {false, true}) {
    const Golden golden = copied_run(add);
    const auto words = int64_t(golden.in.size());
    for (const Exec& exec : hopper_devices()) {
      const test::DeviceArray<uint32_t> in(exec, golden.in), out(exec, words);
      primitives(exec).run_runs(exec, add, in.data(), out.data(), int(words) * 4);
      CHECK(out.download() == golden.want);
      CHECK(out.margins_intact());
    }
  }
}

namespace {

// Runs the kernel of that name on every device and compares.
void check_golden(const Golden& golden) {
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(to_string(exec.device), golden.name);
    const test::RunPrimitive run = primitives(exec).find(golden.name);
    REQUIRE(run != nullptr);
    const test::DeviceArray<uint32_t> in(exec, golden.in);
    const test::DeviceArray<uint32_t> out(exec, int64_t(golden.want.size()));
    run(exec, in.data(), out.data());
    CHECK(out.download() == golden.want);
    CHECK(out.margins_intact());
  }
}

}  // namespace

TEST_CASE("an mbarrier's phases complete with their arrivals and bytes, in order",
          "[kernels][simt]") {
  check_golden(phases());
}

TEST_CASE("warpgroups with roles hand on a ring's stages and take turns", "[kernels][simt]") {
  check_golden(roles());
}

// ---- wgmma ----

namespace {

constexpr int kRows = 64, kDepth = 64, kThreads = 128;

// Returns small integers, so that every order and width of accumulation gives the same result.
int element(uint64_t seed, int64_t index) {
  return int(test::uniform_at(seed, index) * 17) - 8;
}
int element_a(int row, int k, int depth = kDepth) {
  return element(2, row * depth + k);
}
int element_b(int column, int k, int depth = kDepth) {
  return element(3, column * depth + k);
}

constexpr auto kA = [](int row, int k) { return element_a(row, k); };
constexpr auto kB = [](int column, int k) { return element_b(column, k); };

template <typename T>
uint32_t pair_of(int low, int high) {
  return uint32_t{T(float(low)).bits} | uint32_t{T(float(high)).bits} << 16;
}

// Returns an operand [count, 64] of element(i, k) in device memory, two elements per word: k-major
// or mn-major.
template <typename T, typename Element>
Words operand(int count, bool mn_major, Element&& element_of) {
  const int lines = mn_major ? kDepth : count, length = mn_major ? count : kDepth;
  Words words;
  for (int line = 0; line < lines; ++line) {
    for (int x = 0; x < length; x += 2) {
      words.push_back(mn_major ? pair_of<T>(element_of(x, line), element_of(x + 1, line))
                               : pair_of<T>(element_of(line, x), element_of(line, x + 1)));
    }
  }
  return words;
}

// Returns an operand, given as 64 lines of 64 elements, as it is in shared memory: lines of 128
// bytes with TMA's swizzle (PTX ISA, "Asynchronous warpgroup level matrix shared memory layout",
// 128-byte swizzle).
Words tile_of(const Words& lines) {
  const HopperBoxes boxes = {.box = {64, 64}};
  Words tile(lines.size());
  for (int64_t line = 0; line < 64; ++line) {
    for (int64_t x = 0; x < 32; ++x) {
      tile[size_t(place_in_box(boxes, line, 4 * x) / 4)] = lines[size_t(32 * line + x)];
    }
  }
  return tile;
}

// Returns operand a as registers for four steps of 16 along k. Register i of thread t for a step is
// at (4 step + i) 128 + t (PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16", of A in bf16
// and f16).
template <typename T>
Words a_fragments() {
  Words words;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 4; ++i) {
      for (int t = 0; t < kThreads; ++t) {
        const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i % 2);
        const int k = 16 * step + t % 4 * 2 + 8 * (i / 2);
        words.push_back(pair_of<T>(element_a(row, k), element_a(row, k + 1)));
      }
    }
  }
  return words;
}

// Returns the registers of factor * a b. Register i of thread t is at 128 i + t (PTX ISA, "Register
// fragments for wgmma.mma_async.m64nNk16", of D).
Words d_fragments(int columns, int factor, int depth = kDepth) {
  Words words;
  for (int i = 0; i < columns / 2; ++i) {
    for (int t = 0; t < kThreads; ++t) {
      const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + t % 4 * 2 + i % 2;
      int sum = 0;
      for (int k = 0; k < depth; ++k) sum += element_a(row, k, depth) * element_b(column, k, depth);
      words.push_back(std::bit_cast<uint32_t>(float(factor * sum)));
    }
  }
  return words;
}

template <typename T>
void check_product(HopperProduct p) {
  p.dtype = dtype_of<T>;
  Words in = p.a_registers ? a_fragments<T>() : operand<T>(kRows, p.a_mn_major, kA);
  const Words b = operand<T>(p.columns, p.b_mn_major, kB);
  in.insert(in.end(), b.begin(), b.end());
  const Words want = d_fragments(p.columns, 2);
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(to_string(exec.device), p.columns, p.a_registers, p.a_mn_major, p.b_mn_major);
    const test::DeviceArray<uint32_t> d_in(exec, in), out(exec, int64_t(want.size()));
    const test::RunPrimitive run = primitives(exec).find_wgmma(p);
    REQUIRE(run != nullptr);
    run(exec, d_in.data(), out.data());
    CHECK(out.download() == want);
    CHECK(out.margins_intact());
  }
}

// Returns a test in which threads write two tiles to shared memory, with the expected product of
// the tiles.
template <typename T>
Golden written_product(bool mn_major) {
  Golden golden = {cat("wgmma ", mn_major ? "mn" : "k", "-major ", dtype_name(dtype_of<T>)),
                   tile_of(operand<T>(kRows, mn_major, kA)), d_fragments(64, 1)};
  const Words b = tile_of(operand<T>(64, mn_major, kB));
  golden.in.insert(golden.in.end(), b.begin(), b.end());
  return golden;
}

// ---- wgmma with 8-bit operands ----

// Returns a tile [64, 128] of integers as it is in shared memory, in E4M3 (3 mantissa bits) or E5M2
// (2 mantissa bits).
template <typename Element>
Words byte_tile(int mantissa_bits, Element&& element_of) {
  constexpr int kBytes = 128;
  const HopperBoxes boxes = {.dtype = DType::kU8, .box = {kBytes, kRows}};
  Words tile(size_t(kRows * kBytes / 4));
  for (int i = 0; i < kRows * kBytes; ++i) {
    const int value = element_of(i / kBytes, i % kBytes, kBytes);
    if (value == 0) continue;
    int exponent = 0;  // value = half * 2^exponent, half in [1/2, 1)
    const double half = std::frexp(std::abs(value), &exponent);
    const auto mantissa = uint32_t((2 * half - 1) * (1 << mantissa_bits));
    const int biased = exponent - 1 + (mantissa_bits == 3 ? 7 : 15);
    const uint32_t code = (value < 0 ? 0x80u : 0u) | uint32_t(biased) << mantissa_bits | mantissa;
    const int64_t byte = place_in_box(boxes, i / kBytes, i % kBytes);
    tile[size_t(byte / 4)] |= code << 8 * (byte % 4);
  }
  return tile;
}

}  // namespace

TEST_CASE("wgmma multiplies E4M3 and E5M2 along k, byte for byte", "[kernels][simt]") {
  for (const auto& [name, a_bits, b_bits] : {std::tuple{"e4m3 e4m3", 3, 3},
                                             {"e4m3 e5m2", 3, 2},
                                             {"e5m2 e4m3", 2, 3},
                                             {"e5m2 e5m2", 2, 2}}) {
    Golden golden = {cat("wgmma ", name), byte_tile(a_bits, element_a), d_fragments(64, 1, 128)};
    const Words b = byte_tile(b_bits, element_b);
    golden.in.insert(golden.in.end(), b.begin(), b.end());
    check_golden(golden);
  }
}

TEMPLATE_TEST_CASE("wgmma multiplies tiles along k and across, and a in registers",
                   "[kernels][simt]", bf16, f16) {
  for (const int columns : {8, 64, 72, 128, 256}) {
    for (const bool b_mn_major : {false, true}) {
      check_product<TestType>({.columns = columns, .b_mn_major = b_mn_major});
      check_product<TestType>({.columns = columns, .a_mn_major = true, .b_mn_major = b_mn_major});
      check_product<TestType>({.columns = columns, .a_registers = true, .b_mn_major = b_mn_major});
    }
  }
}

TEMPLATE_TEST_CASE("wgmma reads tiles that threads wrote and fenced, byte for byte",
                   "[kernels][simt]", bf16, f16) {
  check_golden(written_product<TestType>(false));
  check_golden(written_product<TestType>(true));
}

// The table has no f16 matmuls: they differ from bf16 matmuls only in the bits of the elements.
TEST_CASE("the table of Hopper's primitives is what the definitions give", "[kernels][simt]") {
  std::vector<Golden> all;
  for (const HopperBoxes& boxes : all_boxes()) {
    all.push_back(loaded_boxes(boxes));
    all.push_back(stored_boxes(boxes));
  }
  for (const bool add : {false, true}) all.push_back(copied_run(add));
  all.push_back(phases());
  all.push_back(roles());
  for (const bool mn_major : {false, true}) all.push_back(written_product<bf16>(mn_major));
  all.push_back({"a [64, 64] bf16, and its wgmma fragments", operand<bf16>(kRows, false, kA),
                 a_fragments<bf16>()});
  test::check_table(
      "hopper_primitives",
      "# What a warpgroup reads and writes around each of Hopper's primitives, as\n"
      "# test/kernels/simt/primitives90.cu says: hash of its words, how many in, how\n"
      "# many out, name.\n",
      all);
}

}  // namespace shale
