#include "shale/kernels/block_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Returns the index of the level nearest to x, which is in [-1, 1]. It equals the number of
// midpoints between neighbouring levels that are below x.
uint8_t nf4_code(float x) {
  uint8_t code = 0;
  for (size_t i = 0; i + 1 < kNf4Levels.size(); ++i) {
    code += x > (kNf4Levels[i] + kNf4Levels[i + 1]) / 2 ? 1 : 0;
  }
  return code;
}

float largest_of(const float* block) {
  float largest = 0;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    if (!std::isfinite(block[i])) {
      throw DataError(cat("quantize: a weight is ", block[i], ", expected finite weights"));
    }
    largest = std::max(largest, std::abs(block[i]));
  }
  return largest;
}

void encode_int8(const float* block, float inverse, uint8_t* to) {
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    to[i] = static_cast<uint8_t>(static_cast<int8_t>(std::lrint(block[i] * inverse)));
  }
}

void encode_nf4(const float* block, float inverse, uint8_t* to) {
  for (int64_t i = 0; i < kCodeBlock; i += 2) {
    const uint8_t first = nf4_code(block[i] * inverse), second = nf4_code(block[i + 1] * inverse);
    to[i / 2] = static_cast<uint8_t>(first << 4 | second);
  }
}

float level_of(BlockCode code, const uint8_t* row, int64_t i) {
  if (code == BlockCode::kInt8) return static_cast<float>(static_cast<int8_t>(row[i]));
  const uint8_t pair = row[i / 2];
  return kNf4Levels[i % 2 == 0 ? pair >> 4 : pair & 15];
}

}  // namespace

void encode_row(BlockCode code, const float* row, int64_t columns, uint8_t* to) {
  uint8_t* const scales = to + code_bytes(code, columns);
  for (int64_t begin = 0; begin < columns; begin += kCodeBlock) {
    const auto [inverse, scale] = block_scale(code, largest_of(row + begin));
    uint8_t* const codes = to + code_bytes(code, begin);
    if (code == BlockCode::kInt8) {
      encode_int8(row + begin, inverse, codes);
    } else {
      encode_nf4(row + begin, inverse, codes);
    }
    std::memcpy(scales + begin / kCodeBlock * int64_t{sizeof(float)}, &scale, sizeof(scale));
  }
}

void decode_row(BlockCode code, const uint8_t* row, int64_t columns, float* to) {
  const uint8_t* const scales = row + code_bytes(code, columns);
  for (int64_t i = 0; i < columns; ++i) {
    float scale = 0;
    std::memcpy(&scale, scales + i / kCodeBlock * int64_t{sizeof(float)}, sizeof(scale));
    to[i] = level_of(code, row, i) * scale;
  }
}

namespace {

// An argument's view and its name.
struct Named {
  const char* name;
  const View& view;
};

void check_blocks(const char* op, BlockCode code, const Named& codes, const Named& numbers) {
  check_dtype(op, codes.name, codes.view, DType::kU8);
  check_dtype(op, numbers.name, numbers.view, kComputeDTypes);
  check_contiguous(op, codes.name, codes.view);
  check_contiguous(op, numbers.name, numbers.view);
  if (numbers.view.ndim() != 2 || numbers.view.size(1) % kCodeBlock != 0) {
    throw ShapeError(cat(op, ": ", numbers.name, " is ", numbers.view,
                         ", expected [rows, columns] with columns a multiple of ", kCodeBlock));
  }
  check_shape(op, codes.name, codes.view,
              {numbers.view.size(0), coded_row_bytes(code, numbers.view.size(1))});
  if (reinterpret_cast<uintptr_t>(codes.view.data) % sizeof(float) != 0) {
    throw ShapeError(
        cat(op, ": ", codes.name, " begins at an address that is not a multiple of 4 bytes"));
  }
}

}  // namespace

void check_args(const DecodeBlocksArgs& a) {
  check_blocks("decode_blocks", a.code, {"x", a.x}, {"y", a.y});
}

void check_args(const EncodeBlocksArgs& a) {
  check_blocks("encode_blocks", a.code, {"y", a.y}, {"x", a.x});
}

}  // namespace shale::kernels
