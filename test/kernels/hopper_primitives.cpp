// What Hopper's primitives give, from the PTX ISA's definitions by element: on the emulator, and on
// a GPU of compute capability 9.0 where there is one. No such GPU has confirmed it yet.
#include "test/kernels/hopper_primitives.h"

#include <cstring>

#include "runtime/base/text.h"
#include "test/support/catch.h"
#include "test/support/kernels.h"

namespace shale {
namespace {

using test::HopperBoxes;
using test::HopperProduct;
using Words = std::vector<uint32_t>;

std::vector<Exec> hopper_devices() {
  std::vector<Exec> execs = test::devices_with({});
  std::erase_if(execs, [](const Exec& exec) { return exec.device.type == DeviceType::kCpu; });
  for (Exec& exec : execs) {
    if (exec.device.type == DeviceType::kEmu) exec.device.arch = 90;
  }
  std::erase_if(execs, [](const Exec& exec) { return exec.device.arch != 90; });
  REQUIRE_FALSE(execs.empty());
  return execs;
}

// The kernels, compiled for the device.
struct Primitives {
  decltype(&kernels::emu::run_hopper_boxes) run_boxes;
  decltype(&kernels::emu::run_hopper_runs) run_runs;
  decltype(&kernels::emu::find_wgmma) find_wgmma;
};
Primitives primitives([[maybe_unused]] const Exec& exec) {
#ifdef SHALE_HAVE_CUDA
  if (exec.device.type == DeviceType::kCuda) {
    namespace gpu = kernels::cuda;
    return {gpu::run_hopper_boxes, gpu::run_hopper_runs, gpu::find_wgmma};
  }
#endif
  namespace gpu = kernels::emu;
  return {gpu::run_hopper_boxes, gpu::run_hopper_runs, gpu::find_wgmma};
}

// ---- Boxes ----

// Where byte `byte` of line `line` of a box lies in shared memory.
int64_t place_in_box(const HopperBoxes& boxes, int64_t line, int64_t byte) {
  const int64_t line_bytes = boxes.box[0] * dtype_size(boxes.dtype);
  if (!boxes.swizzle) return line * line_bytes + byte;
  return line * 128 + (byte / 16 ^ line % 8) * 16 + byte % 16;
}

// fn(byte of the box in shared memory, element of the array or -1 outside) for all of a box.
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

// Inside, over the last edges, over the first.
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

// Words whose 16-bit halves are all different, and not zero.
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

TEST_CASE("tma_load brings a box in its layout, and zeros from outside", "[kernels][simt]") {
  for (const HopperBoxes& boxes : all_boxes()) {
    const Words in = counted_words(array_words(boxes));
    const int64_t each = box_words(boxes), bytes = dtype_size(boxes.dtype);
    Words want(size_t(3 * each), 0);
    for (size_t turn = 0; turn < 3; ++turn) {
      for_box(boxes, boxes.places[turn], [&](int64_t byte, int64_t element) {
        if (element < 0) return;
        copy_element(&want[turn * size_t(each)], byte, in.data(), element * bytes, boxes.dtype);
      });
    }
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), boxes.dims, boxes.swizzle, dtype_name(boxes.dtype));
      const test::DeviceArray<uint32_t> d_in(exec, in), out(exec, 3 * each);
      primitives(exec).run_boxes(exec, boxes, false, d_in.data(), out.data(), int(3 * each));
      CHECK(out.download() == want);
      CHECK(out.margins_intact());
    }
  }
}

TEST_CASE("tma_store writes what of a box is inside the array", "[kernels][simt]") {
  for (const HopperBoxes& boxes : all_boxes()) {
    const Words in = counted_words(box_words(boxes));
    const int64_t words = array_words(boxes), bytes = dtype_size(boxes.dtype);
    Words want(size_t(words), test::kNotStored);
    for (size_t turn = 0; turn < 2; ++turn) {
      for_box(boxes, boxes.places[turn], [&](int64_t byte, int64_t element) {
        if (element < 0) return;
        copy_element(want.data(), element * bytes, in.data(), byte, boxes.dtype);
      });
    }
    for (const Exec& exec : hopper_devices()) {
      CAPTURE(to_string(exec.device), boxes.dims, boxes.swizzle, dtype_name(boxes.dtype));
      const test::DeviceArray<uint32_t> d_in(exec, in), out(exec, words);
      primitives(exec).run_boxes(exec, boxes, true, d_in.data(), out.data(), int(words));
      CHECK(out.download() == want);
      CHECK(out.margins_intact());
    }
  }
}

TEST_CASE("bulk copies move runs of bytes, and add f32", "[kernels][simt]") {
  Words in, sums;
  for (int i = 0; i < 256; ++i) {
    in.push_back(std::bit_cast<uint32_t>(float(i - 100)));
    sums.push_back(std::bit_cast<uint32_t>(float(i - 99)));  // kNotStored is 1
  }
  const int bytes = int(in.size()) * 4;
  for (const Exec& exec : hopper_devices()) {
    for (const bool add : {false, true}) {
      const test::DeviceArray<uint32_t> d_in(exec, in), out(exec, int64_t(in.size()));
      primitives(exec).run_runs(exec, add, d_in.data(), out.data(), bytes);
      CHECK(out.download() == (add ? sums : in));
      CHECK(out.margins_intact());
    }
  }
}

// ---- Products ----

namespace {

constexpr int kRows = 64, kDepth = 64;

// Small integers, so that every order and width of accumulation gives the same.
int element(uint64_t seed, int64_t index) {
  return int(test::uniform_at(seed, index) * 17) - 8;
}

// The bits of element (i, k) of an operand [count, 64], as it lies in memory, two to a word.
template <typename T>
void append_operand(Words& words, uint64_t seed, int count, bool mn_major) {
  const int lines = mn_major ? kDepth : count, length = mn_major ? count : kDepth;
  for (int line = 0; line < lines; ++line) {
    uint32_t word = 0;
    for (int x = 0; x < length; ++x) {
      const int i = mn_major ? x : line, k = mn_major ? line : x;
      const uint32_t bits = T(float(element(seed, i * kDepth + k))).bits;
      word = x % 2 == 0 ? bits : word | bits << 16;
      if (x % 2 == 1) words.push_back(word);
    }
  }
}

template <typename T>
void check_product(HopperProduct p) {
  p.dtype = dtype_of<T>;
  Words in;
  append_operand<T>(in, 2, kRows, p.a_mn_major);
  append_operand<T>(in, 3, p.columns, p.b_mn_major);
  std::vector<float> want;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < p.columns; ++column) {
      int sum = 0;
      for (int k = 0; k < kDepth; ++k) {
        sum += element(2, row * kDepth + k) * element(3, column * kDepth + k);
      }
      want.push_back(float(2 * sum));
    }
  }
  for (const Exec& exec : hopper_devices()) {
    CAPTURE(to_string(exec.device), p.columns, p.a_registers, p.a_mn_major, p.b_mn_major);
    const test::DeviceArray<uint32_t> d_in(exec, in);
    const test::DeviceArray<float> out(exec, int64_t(want.size()));
    const test::RunPrimitive run = primitives(exec).find_wgmma(p);
    REQUIRE(run != nullptr);
    run(exec, d_in.data(), reinterpret_cast<uint32_t*>(out.data()));
    CHECK(out.download() == want);
    CHECK(out.margins_intact());
  }
}

}  // namespace

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

}  // namespace shale
