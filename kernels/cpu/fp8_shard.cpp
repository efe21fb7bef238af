#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/fp8_shard.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <atomic>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/cpu/simd-inl.h"
#include "shale/kernels/fp8_shard.h"

// Sharded fp8 weights. A thread owns a range of elements and processes it in runs: consecutive
// elements of a row in one quantization block. Loops are simple, so that compilers vectorise them.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kShardGrain = 16384;  // elements per chunk of work

// Divides elements [begin, end) of x into runs of one row and one quantization block. Calls
// visit(begin, count, block) for each run. Element 0 of x is element `first` of the matrix.
template <typename Visit>
HWY_INLINE void for_each_piece(int64_t begin, int64_t end, int64_t first, int64_t columns,
                               Fp8BlockIndex index, const Visit& visit) {
  while (begin < end) {
    const int64_t row = (first + begin) / columns, column = (first + begin) % columns;
    const int64_t block_end = std::min((column / kFp8Block + 1) * kFp8Block, columns);
    const int64_t count = std::min(block_end - column, end - begin);
    visit(begin, count, index.of(row, column));
    begin += count;
  }
}

// Sets largest = max(largest, value) atomically, because threads may share a block.
HWY_INLINE void raise_to(int32_t& largest, int32_t value) {
  const std::atomic_ref<int32_t> shared(largest);
  int32_t found = shared.load(std::memory_order_relaxed);
  while (found < value && !shared.compare_exchange_weak(found, value, std::memory_order_relaxed)) {
  }
}

void fp8_largest_target(const Exec& exec, const Fp8LargestArgs& a) {
  const auto* const x = a.x.as<float>();
  auto* const largest = a.largest.as<int32_t>();
  parallel_for(exec, a.x.numel(), kShardGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const auto raise = [&](int64_t at, int64_t count, int64_t block) HWY_ATTR {
      int32_t most = 0;
      for (int64_t i = at; i < at + count; ++i) most = std::max(most, bf16(x[i]).bits & 0x7fff);
      raise_to(largest[block], most << 16);
    };
    for_each_piece(begin, end, a.first, a.columns, Fp8BlockIndex(a.largest), raise);
  });
}

void fp8_encode_target(const Exec& exec, const Fp8EncodeArgs& a) {
  const auto* const x = a.x.as<float>();
  const auto* const largest = a.largest.as<int32_t>();
  auto* const codes = a.codes.as<uint8_t>();
  parallel_for(exec, a.x.numel(), kShardGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const auto encode = [&](int64_t at, int64_t count, int64_t block) HWY_ATTR {
      const float inverse = inverse_power_of_two(fp8_exponent<e4m3>(uint32_t(largest[block])));
      for (int64_t i = at; i < at + count; ++i) {
        codes[i] = fp8_code<e4m3>(to_f32(bf16(x[i])) * inverse);
      }
    };
    for_each_piece(begin, end, a.first, a.columns, Fp8BlockIndex(a.largest), encode);
  });
}

void fp8_decode_target(const Exec& exec, const Fp8DecodeArgs& a) {
  const auto* const codes = a.codes.as<uint8_t>();
  const auto* const largest = a.largest.as<int32_t>();
  auto* const y = a.y.as<bf16>();
  parallel_for(exec, a.y.numel(), kShardGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    const auto decode = [&](int64_t at, int64_t count, int64_t block) HWY_ATTR {
      const float scale = power_of_two(fp8_exponent<e4m3>(uint32_t(largest[block])));
      for (int64_t i = at; i < at + count; ++i) {
        const float value = decoded(e4m3{codes[i]}) * scale;
        y[i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      }
    };
    for_each_piece(begin, end, 0, a.y.size(1), Fp8BlockIndex(a.largest), decode);
  });
}

// Writes the codes and the scale of one tile of an operand. Its corner is element `first` of line
// first_line; a line is a row of the operand in memory. code(line, i) returns the code of element i
// of a line.
template <typename CodeOf>
HWY_INLINE void write_lines(const Fp8Operand& to, int64_t first_line, int64_t first, float scale,
                            bool has_codes, const CodeOf& code) {
  const int64_t last_line = std::min(first_line + kFp8Block, to.lines());
  const int64_t last = std::min(first + kFp8Block, to.length());
  float* const scales = to.scales.as<float>() + first / kFp8Block * to.scales.stride(0);
  std::fill(scales + first_line, scales + last_line, scale);
  if (has_codes) return;
  for (int64_t line = first_line; line < last_line; ++line) {
    uint8_t* const codes = to.codes.as<uint8_t>() + line * to.codes.stride(0);
    for (int64_t i = first; i < last; ++i) codes[i] = code(line, i);
    std::fill(codes + last, codes + fp8_codes_stride(last), uint8_t{0});
  }
}

void fp8_operands_target(const Exec& exec, const Fp8OperandsArgs& a) {
  const auto* const codes = a.codes.as<uint8_t>();
  const auto* const largest = a.largest.as<int32_t>();
  const int64_t columns = a.codes.size(1);
  const Fp8BlockIndex index(a.largest);
  const int64_t across = fp8_scale_rows(columns), down = fp8_scale_rows(a.codes.size(0));
  parallel_for(exec, across * down, 2, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile / across * kFp8Block, column = tile % across * kFp8Block;
      const auto bits = static_cast<uint32_t>(largest[index.of(row, column)]);
      const float scale = power_of_two(fp8_exponent<e4m3>(bits));
      if (a.rows.defined()) {
        write_lines(a.rows, row, column, scale, a.rows.codes.data == a.codes.data,
                    [&](int64_t line, int64_t i) { return codes[line * columns + i]; });
      }
      if (a.columns.defined()) {
        write_lines(a.columns, column, row, scale, false,
                    [&](int64_t line, int64_t i) { return codes[i * columns + line]; });
      }
    }
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(fp8_largest_target);
HWY_EXPORT(fp8_encode_target);
HWY_EXPORT(fp8_decode_target);
HWY_EXPORT(fp8_operands_target);

template <>
void cpu::run(const Exec& exec, const Fp8LargestArgs& a) {
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(fp8_largest_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const Fp8EncodeArgs& a) {
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(fp8_encode_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const Fp8DecodeArgs& a) {
  if (a.y.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(fp8_decode_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const Fp8OperandsArgs& a) {
  if (a.codes.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(fp8_operands_target)(exec, a);
}

}  // namespace shale::kernels
#endif
