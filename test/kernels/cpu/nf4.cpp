// Compares NF4 codes with block_codes/nf4.json, made by test/fixtures/make_block_codes.py.
#include <algorithm>
#include <cstring>
#include <vector>

#include "shale/kernels/block_codes.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"

namespace shale {

TEST_CASE("NF4 has the levels, codes, scales and values of bitsandbytes", "[kernels]") {
  constexpr auto kCode = kernels::BlockCode::kNf4;
  const Json want = test::json_file(test::fixture_path("block_codes/nf4.json"));
  const auto levels = want["levels"].get<std::vector<float>>();
  CHECK(std::ranges::equal(levels, kernels::kNf4Levels));
  const auto weights = want["weights"].get<std::vector<float>>();
  const auto values = want["values"].get<std::vector<float>>();
  const auto codes = want["codes"].get<std::vector<uint8_t>>();
  const auto scales = want["scales"].get<std::vector<float>>();
  const int64_t rows = want["rows"].integer(), columns = want["columns"].integer();
  const int64_t bytes = columns / 2, blocks = columns / kernels::kCodeBlock;
  std::vector<uint8_t> coded(size_t(coded_row_bytes(kCode, columns)));
  std::vector<float> decoded(static_cast<size_t>(columns));
  REQUIRE(std::ssize(coded) == bytes + 4 * blocks);
  for (int64_t row = 0; row < rows; ++row) {
    kernels::encode_row(kCode, weights.data() + row * columns, columns, coded.data());
    kernels::decode_row(kCode, coded.data(), columns, decoded.data());
    CHECK(std::equal(coded.begin(), coded.begin() + bytes, codes.data() + row * bytes));
    CHECK(std::memcmp(coded.data() + bytes, scales.data() + row * blocks, size_t(4 * blocks)) == 0);
    CHECK(std::equal(decoded.begin(), decoded.end(), values.data() + row * columns));
  }
}

}  // namespace shale
