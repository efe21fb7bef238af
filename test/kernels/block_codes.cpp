// Tests weights quantized to 4 and 8 bits. cpu/nf4.cpp compares 4-bit codes with those of another
// library.
#include "shale/kernels/block_codes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/op_check.h"

namespace shale {
namespace {

using kernels::BlockCode;
using test::DeviceArray;

struct Coded {
  std::vector<uint8_t> bytes;
  std::vector<float> values;  // the values that the codes stand for
};

Coded code_rows(BlockCode code, const std::vector<float>& weights, int64_t columns) {
  const int64_t rows = std::ssize(weights) / columns, row = coded_row_bytes(code, columns);
  Coded coded{std::vector<uint8_t>(size_t(rows * row)), std::vector<float>(weights.size())};
  for (int64_t i = 0; i < rows; ++i) {
    uint8_t* const bytes = coded.bytes.data() + i * row;
    kernels::encode_row(code, weights.data() + i * columns, columns, bytes);
    kernels::decode_row(code, bytes, columns, coded.values.data() + i * columns);
  }
  return coded;
}

}  // namespace

TEST_CASE("8 bits are within half a step of each number", "[kernels]") {
  const auto weights = test::randn<float>(3 * 128, 5);
  const Coded coded = code_rows(BlockCode::kInt8, weights, 128);
  for (size_t block = 0; block < weights.size(); block += kernels::kCodeBlock) {
    float largest = 0;
    for (size_t i = 0; i < kernels::kCodeBlock; ++i) {
      largest = std::max(largest, std::abs(weights[block + i]));
    }
    // Codes have steps of 1 / 127 of the block's largest value. The error is half a step, plus the
    // roundings of the scale and of the product.
    const double allowed = largest / 127.0 * (0.5 + 127 * 3 * 0x1p-24);
    for (size_t i = 0; i < kernels::kCodeBlock; ++i) {
      CHECK(std::abs(double(weights[block + i]) - coded.values[block + i]) <= allowed);
    }
  }
}

TEST_CASE("numbers of any size are codes, and what is not finite is refused", "[kernels]") {
  const BlockCode code = GENERATE(BlockCode::kInt8, BlockCode::kNf4);
  std::vector<float> block(kernels::kCodeBlock, 0.0f);
  CHECK(code_rows(code, block, kernels::kCodeBlock).values == block);
  block[3] = 1e-45f;  // so small that 1 / scale is infinite
  CHECK(code_rows(code, block, kernels::kCodeBlock).values ==
        std::vector<float>(kernels::kCodeBlock, 0.0f));
  block[3] = -std::numeric_limits<float>::max();
  CHECK(code_rows(code, block, kernels::kCodeBlock).values[3] == Approx(block[3]).epsilon(1e-6));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    block[5] = bad;
    CHECK(test::contains(test::message_of<DataError>([&] { code_rows(code, block, 64); }),
                         "expected finite weights"));
  }
}

TEMPLATE_TEST_CASE("decode_blocks gives the host's values on every device", "[kernels]", float,
                   bf16, f16) {
  const BlockCode code = GENERATE(BlockCode::kInt8, BlockCode::kNf4);
  for (const Exec& exec : test::devices_with({&kernels::decode_blocks})) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{0, 64}, {1, 64}, {3, 192}, {70, 128}, {5, 4096}}) {
      CAPTURE(to_string(exec.device), rows, columns, int(code));
      const Coded coded = code_rows(code, test::randn<float>(rows * columns, 7), columns);
      const DeviceArray<uint8_t> x(exec, coded.bytes);
      const DeviceArray<TestType> y(exec, rows * columns);
      const int64_t bytes = kernels::coded_row_bytes(code, columns);
      for (const int threads : {1, 3}) {
        kernels::decode_blocks(
            test::with_threads(exec, threads),
            {.x = x.view({rows, bytes}), .y = y.view({rows, columns}), .code = code});
        CHECK(y.margins_intact());
        const std::vector<TestType> found = y.download();
        for (size_t i = 0; i < found.size(); ++i) {
          REQUIRE(test::to_f64(found[i]) == test::to_f64(TestType(coded.values[i])));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("encode_blocks writes the host's bytes on every device", "[kernels]", float,
                   bf16, f16) {
  const BlockCode code = GENERATE(BlockCode::kInt8, BlockCode::kNf4);
  for (const Exec& exec : test::devices_with({&kernels::encode_blocks})) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{0, 64}, {1, 64}, {3, 192}, {70, 128}, {5, 4096}}) {
      CAPTURE(to_string(exec.device), rows, columns, int(code));
      auto numbers = test::randn<TestType>(rows * columns, 11, 0, 0.3);
      // One block is all zeros, and one has a scale so small that 1 / scale is infinite.
      if (rows > 1) {
        std::fill_n(numbers.begin(), 64, TestType(0.0f));
        std::fill_n(numbers.begin() + 64, 64, TestType(1e-40f));
      }
      std::vector<float> wide(numbers.begin(), numbers.end());
      const Coded want = code_rows(code, wide, columns);
      const DeviceArray<TestType> x(exec, numbers);
      const int64_t bytes = kernels::coded_row_bytes(code, columns);
      const DeviceArray<uint8_t> y(exec, rows * bytes);
      for (const int threads : {1, 3}) {
        kernels::encode_blocks(
            test::with_threads(exec, threads),
            {.x = x.view({rows, columns}), .y = y.view({rows, bytes}), .code = code});
        CHECK(y.margins_intact());
        CHECK(y.download() == want.bytes);
      }
    }
  }
}

TEST_CASE("a block with a number that is not finite is NaN, and no other", "[kernels]") {
  const BlockCode code = GENERATE(BlockCode::kInt8, BlockCode::kNf4);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
    for (const Exec& exec : test::devices_with({&kernels::encode_blocks})) {
      auto numbers = test::randn<float>(256, 3);
      numbers[64 + 17] = bad;
      const int64_t bytes = kernels::coded_row_bytes(code, 128);
      const DeviceArray<float> x(exec, numbers), z(exec, 256);
      const DeviceArray<uint8_t> y(exec, 2 * bytes);
      kernels::encode_blocks(exec, {.x = x.view({2, 128}), .y = y.view({2, bytes}), .code = code});
      kernels::decode_blocks(exec, {.x = y.view({2, bytes}), .y = z.view({2, 128}), .code = code});
      const std::vector<float> got = z.download();
      for (size_t i = 0; i < got.size(); ++i) CHECK(std::isnan(got[i]) == (i / 64 == 1));
    }
  }
}

TEST_CASE("decode_blocks refuses rows that are no whole blocks", "[kernels]") {
  const Exec& exec = test::devices().front();
  const DeviceArray<uint8_t> x(exec, 3 * 36);
  const DeviceArray<float> y(exec, 3 * 64);
  const auto error = [&](const View& from, const View& to) {
    return test::message_of<ShapeError>(
        [&] { kernels::decode_blocks(exec, {.x = from, .y = to, .code = BlockCode::kNf4}); });
  };
  CHECK(test::contains(error(x.view({3, 36}), y.view({6, 32})), "multiple of 64"));
  CHECK(test::contains(error(x.view({3, 35}), y.view({3, 64})), "decode_blocks: x"));
  CHECK(test::contains(error(x.view({2, 36}, {36, 1}, 2), y.view({2, 64})), "multiple of 4 bytes"));
}

}  // namespace shale
