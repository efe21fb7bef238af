#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/fp8.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <array>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/fp8_decode.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/cpu/simd-inl.h"
#include "shale/kernels/dry_run.h"
#include "shale/kernels/fp8.h"

// Quantization to fp8. A thread owns tiles of kFp8Block rows and columns of x. Loops over columns
// are simple, so that compilers vectorise them.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kGrain = 32768;  // elements per chunk of work

// The largest magnitude of each row and of each column of a tile, as bits of f32.
struct Fp8Largest {
  std::array<uint32_t, kFp8Block> of_row{}, of_column{};
};

// The scales of a tile's rows or columns, or the inverses of the scales.
using Fp8Factors = std::array<float, kFp8Block>;

HWY_INLINE Fp8Blocks blocks_of(const QuantizeFp8Args& a) {
  return a.rows.defined() ? a.rows.blocks : a.columns.blocks;
}

struct Fp8Tile {
  const bf16* x;
  int64_t rows, columns, stride;
};

HWY_INLINE Fp8Largest largest_of(const Fp8Tile& tile, Fp8Blocks blocks) {
  Fp8Largest largest;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const bf16* const x = tile.x + row * tile.stride;
    uint32_t most = 0;
    for (int64_t i = 0; i < tile.columns; ++i) {
      const uint32_t bits = static_cast<uint32_t>(x[i].bits & 0x7fffu) << 16;
      most = std::max(most, bits);
      largest.of_column[size_t(i)] = std::max(largest.of_column[size_t(i)], bits);
    }
    largest.of_row[size_t(row)] = most;
  }
  if (blocks == Fp8Blocks::kSquares) {
    const uint32_t most = *std::max_element(largest.of_row.begin(), largest.of_row.end());
    largest.of_row.fill(most);
    largest.of_column.fill(most);
  }
  return largest;
}

// Returns the largest magnitude of all elements, as bits of f32.
HWY_INLINE uint32_t largest_of(const bf16* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, static_cast<uint32_t>(x[i].bits & 0x7fffu));
  }
  return most << 16;
}

// Writes the scales of `count` blocks; returns their inverses, by which numbers are multiplied
// before rounding.
template <typename Number>
HWY_INLINE Fp8Factors write_scales(const std::array<uint32_t, kFp8Block>& largest, int64_t count,
                                   float* scales) {
  Fp8Factors inverses;
  for (size_t i = 0; i < largest.size(); ++i) {
    const int32_t k = fp8_exponent<Number>(largest[i]);
    if (int64_t(i) < count) scales[i] = power_of_two(k);
    inverses[i] = inverse_power_of_two(k);
  }
  return inverses;
}

template <typename Number>
HWY_INLINE void write_rows(const Fp8Tile& tile, const Fp8Factors& of_row, uint8_t* codes,
                           int64_t stride) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const bf16* const x = tile.x + row * tile.stride;
    uint8_t* const to = codes + row * stride;
    const float factor = of_row[size_t(row)];
    for (int64_t i = 0; i < tile.columns; ++i) {
      to[i] = fp8_code<Number>(to_f32(x[i]) * factor);
    }
    std::fill(to + tile.columns, to + fp8_codes_stride(tile.columns), uint8_t{0});
  }
}

// Writes the codes of the transpose. They first go to a buffer row by row, so that rounding is
// vectorised.
template <typename Number>
HWY_INLINE void write_columns(const Fp8Tile& tile, const Fp8Factors& of_column, uint8_t* codes,
                              int64_t stride) {
  std::array<uint8_t, kFp8Block * kFp8Block> rows;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const bf16* const x = tile.x + row * tile.stride;
    uint8_t* const to = rows.data() + row * kFp8Block;
    for (int64_t i = 0; i < tile.columns; ++i) {
      to[i] = fp8_code<Number>(to_f32(x[i]) * of_column[size_t(i)]);
    }
  }
  for (int64_t column = 0; column < tile.columns; ++column) {
    uint8_t* const to = codes + column * stride;
    for (int64_t row = 0; row < tile.rows; ++row) {
      to[row] = rows[size_t(row * kFp8Block + column)];
    }
    std::fill(to + tile.rows, to + fp8_codes_stride(tile.rows), uint8_t{0});
  }
}

// Quantizes a tile. `of_tensor`: the largest magnitude of x, if there is one scale for the tensor.
template <typename Number>
HWY_INLINE void quantize_tile(const QuantizeFp8Args& a, int64_t row, int64_t column,
                              uint32_t of_tensor) {
  const int64_t rows = a.x.size(0), columns = a.x.size(1);
  const Fp8Tile tile = {.x = a.x.as<bf16>() + row * columns + column,
                        .rows = std::min(kFp8Block, rows - row),
                        .columns = std::min(kFp8Block, columns - column),
                        .stride = columns};
  const Fp8Blocks blocks = blocks_of(a);
  Fp8Largest largest;
  if (blocks == Fp8Blocks::kTensor) {
    largest.of_row.fill(of_tensor);
    largest.of_column.fill(of_tensor);
  } else {
    largest = largest_of(tile, blocks);
  }
  const auto scales_at = [](const Fp8Operand& to, int64_t line, int64_t in_line) {
    return to.scales.as<float>() + in_line / kFp8Block * to.scales.stride(0) + line;
  };
  const auto codes_at = [](const Fp8Operand& to, int64_t line, int64_t in_line) {
    return to.codes.as<uint8_t>() + line * to.codes.stride(0) + in_line;
  };
  if (a.rows.defined()) {
    const Fp8Factors factors =
        write_scales<Number>(largest.of_row, tile.rows, scales_at(a.rows, row, column));
    write_rows<Number>(tile, factors, codes_at(a.rows, row, column), a.rows.codes.stride(0));
  }
  if (a.columns.defined()) {
    const Fp8Factors factors =
        write_scales<Number>(largest.of_column, tile.columns, scales_at(a.columns, column, row));
    write_columns<Number>(tile, factors, codes_at(a.columns, column, row),
                          a.columns.codes.stride(0));
  }
}

template <typename Number>
void quantize_numbers(const Exec& exec, const QuantizeFp8Args& a) {
  const int64_t count = a.x.numel();
  uint32_t of_tensor = 0;
  if (blocks_of(a) == Fp8Blocks::kTensor) {
    const int64_t chunks = (count + kGrain - 1) / kGrain;
    uint32_t* const of_chunk = scratch<uint32_t>("quantize_fp8", exec, chunks);
    parallel_for(exec, chunks, 1, [&](int64_t begin, int64_t end) HWY_ATTR {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = chunk * kGrain;
        of_chunk[chunk] = largest_of(a.x.as<bf16>() + first, std::min(kGrain, count - first));
      }
    });
    of_tensor = DryRun::is_on() ? 0 : *std::max_element(of_chunk, of_chunk + chunks);
  }
  const int64_t across = fp8_scale_rows(a.x.size(1)), down = fp8_scale_rows(a.x.size(0));
  parallel_for(exec, across * down, 2, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t tile = begin; tile < end; ++tile) {
      quantize_tile<Number>(a, tile / across * kFp8Block, tile % across * kFp8Block, of_tensor);
    }
  });
}

void quantize_target(const Exec& exec, const QuantizeFp8Args& a) {
  const Fp8Operand& one = a.rows.defined() ? a.rows : a.columns;
  if (one.format == Fp8Format::kE5M2) return quantize_numbers<e5m2>(exec, a);
  quantize_numbers<e4m3>(exec, a);
}

// Products are exact: an fp8 number times a power of two is exact in bf16.
template <typename Number>
void decode_numbers(const Exec& exec, const Fp8Operand& operand, bf16* to) {
  const int64_t length = operand.length();
  if (operand.lines() == 0 || length == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / length);
  parallel_for(exec, operand.lines(), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t line = begin; line < end; ++line) {
      const uint8_t* const codes = operand.codes.as<uint8_t>() + line * operand.codes.stride(0);
      const float* const scales = operand.scales.as<float>() + line;
      for (int64_t first = 0; first < length; first += kFp8Block) {
        const float scale = scales[first / kFp8Block * operand.scales.stride(0)];
        const int64_t last = std::min(first + kFp8Block, length);
        for (int64_t i = first; i < last; ++i) {
          const float x = decoded(Number{codes[i]}) * scale;
          to[line * length + i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
        }
      }
    }
  });
}

void decode_target(const Exec& exec, const Fp8Operand& operand, bf16* to) {
  if (operand.format == Fp8Format::kE5M2) return decode_numbers<e5m2>(exec, operand, to);
  decode_numbers<e4m3>(exec, operand, to);
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(quantize_target);
HWY_EXPORT(decode_target);

template <>
void cpu::run(const Exec& exec, const QuantizeFp8Args& a) {
  if (a.x.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(quantize_target)(exec, a);
}

void cpu::decode_fp8(const Exec& exec, const Fp8Operand& operand, bf16* to) {
  HWY_DYNAMIC_DISPATCH(decode_target)(exec, operand, to);
}

}  // namespace shale::kernels
#endif
