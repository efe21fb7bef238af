#include "shale/kernels/embedding.h"

#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

struct Sizes {
  int64_t B, T, V, C, max_T, first;
};

// Cases: empty, one, ragged, exact, a batch that often repeats every row, a mostly unused table.
const std::vector<Sizes> kSizes = {{0, 4, 5, 8, 4, 0},      {1, 1, 1, 1, 1, 0},
                                   {2, 3, 7, 31, 5, 2},     {2, 8, 16, 32, 8, 0},
                                   {4, 100, 3, 17, 200, 9}, {2, 16, 5000, 40, 16, 0}};

template <typename T>
std::vector<T> run_fwd(const Exec& exec, const Sizes& s, const std::vector<int32_t>& ids,
                       const std::vector<T>& table, const std::vector<T>& positions) {
  const DeviceArray<int32_t> d_ids(exec, ids);
  const DeviceArray<T> d_table(exec, table), d_positions(exec, positions), y(exec, s.B * s.T * s.C);
  kernels::embedding_fwd(
      exec, {.ids = d_ids.view({s.B, s.T}),
             .table = d_table.view({s.V, s.C}),
             .positions = positions.empty() ? View() : d_positions.view({s.max_T, s.C}),
             .y = y.view({s.B, s.T, s.C}),
             .first_position = s.first});
  CHECK(y.margins_intact());
  return y.download();
}

struct Grads {
  std::vector<float> table, positions;
};

template <typename T>
Grads run_bwd(const Exec& exec, const Sizes& s, const std::vector<int32_t>& ids,
              const std::vector<T>& dy, float start) {
  const DeviceArray<int32_t> d_ids(exec, ids);
  const DeviceArray<T> d_dy(exec, dy);
  const DeviceArray<float> table(exec, std::vector<float>(size_t(s.V * s.C), start));
  const DeviceArray<float> positions(exec, std::vector<float>(size_t(s.max_T * s.C), start));
  const bool accumulate = start == start;
  kernels::embedding_bwd(exec, {.ids = d_ids.view({s.B, s.T}),
                                .dy = d_dy.view({s.B, s.T, s.C}),
                                .d_table = table.view({s.V, s.C}),
                                .d_positions = positions.view({s.max_T, s.C}),
                                .first_position = s.first,
                                .accumulate_table = accumulate,
                                .accumulate_positions = accumulate});
  CHECK((table.margins_intact() && positions.margins_intact()));
  return {table.download(), positions.download()};
}

// The reference adds row by row in (b, t) order in f32. Results that add "in order" must have its
// bits.
template <typename T>
Grads ref_bwd(const Sizes& s, const std::vector<int32_t>& ids, const std::vector<T>& dy,
              float start) {
  Grads out = {std::vector<float>(size_t(s.V * s.C), start),
               std::vector<float>(size_t(s.max_T * s.C), start)};
  for (int64_t r = 0; r < s.B * s.T; ++r) {
    for (int64_t c = 0; c < s.C; ++c) {
      const float value = to_f32(dy[size_t(r * s.C + c)]);
      out.table[size_t(ids[size_t(r)] * s.C + c)] += value;
      out.positions[size_t((s.first + r % s.T) * s.C + c)] += value;
    }
  }
  return out;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEMPLATE_TEST_CASE("embedding_fwd adds table and position rows, rounded once",
                   "[kernels][embedding]", float, bf16, f16) {
  const auto s = GENERATE(from_range(kSizes));
  const auto ids = test::rand_int<int32_t>(s.B * s.T, 1, 0, s.V - 1);
  const auto table = test::randn<TestType>(s.V * s.C, 2);
  const auto positions = test::randn<TestType>(s.max_T * s.C, 3);
  std::vector<TestType> want, plain;
  for (int64_t r = 0; r < s.B * s.T; ++r) {
    for (int64_t c = 0; c < s.C; ++c) {
      const TestType row = table[size_t(ids[size_t(r)] * s.C + c)];
      plain.push_back(row);
      want.push_back(
          TestType(to_f32(row) + to_f32(positions[size_t((s.first + r % s.T) * s.C + c)])));
    }
  }
  for (const Exec& exec : test::devices_with({&kernels::embedding_fwd})) {
    CAPTURE(s.B, s.T, s.V, s.C);
    CHECK(test::same_bits(run_fwd(exec, s, ids, table, positions), want));
    CHECK(test::same_bits(run_fwd<TestType>(exec, s, ids, table, {}), plain));
  }
}

TEST_CASE("parts of a table add up to it, and keep their own gradients", "[kernels][embedding]") {
  constexpr int64_t B = 2, T = 9, V = 12, C = 20, kParts = 3, kRows = V / kParts;
  const auto ids = test::rand_int<int32_t>(B * T, 1, 0, V - 1);
  auto table = test::randn<float>(V * C, 2);
  table[0] = -0.f;  // adding the zeros of the other parts turns -0 into 0
  const auto dy = test::randn<float>(B * T * C, 3);
  const Sizes whole{B, T, V, C, T, 0};
  for (const Exec& exec : test::devices_with({&kernels::embedding_fwd})) {
    const auto want = run_fwd<float>(exec, whole, ids, table, {});
    const Grads want_grads = run_bwd(exec, whole, ids, dy, 0.f);
    std::vector<float> sum(want.size(), 0.f), grads;
    const DeviceArray<int32_t> d_ids(exec, ids);
    for (int64_t k = 0; k < kParts; ++k) {
      const auto begin = table.begin() + k * kRows * C;
      const DeviceArray<float> part(exec, {begin, begin + kRows * C}), y(exec, B * T * C);
      kernels::embedding_fwd(exec, {.ids = d_ids.view({B, T}),
                                    .table = part.view({kRows, C}),
                                    .y = y.view({B, T, C}),
                                    .first_row = k * kRows,
                                    .whole_rows = V});
      const auto values = y.download();
      for (size_t i = 0; i < sum.size(); ++i) {
        CHECK_FALSE(std::signbit(values[i]) != std::signbit(values[i] + 0.f));
        sum[i] += values[i];
      }
      const DeviceArray<float> d_dy(exec, dy), d_table(exec, kRows * C);
      kernels::embedding_bwd(exec, {.ids = d_ids.view({B, T}),
                                    .dy = d_dy.view({B, T, C}),
                                    .d_table = d_table.view({kRows, C}),
                                    .first_row = k * kRows,
                                    .whole_rows = V});
      const auto of_part = d_table.download();
      grads.insert(grads.end(), of_part.begin(), of_part.end());
    }
    for (size_t i = 0; i < sum.size(); ++i) REQUIRE(sum[i] == want[i]);
    CHECK(test::same_bits(grads, want_grads.table));
  }
}

TEMPLATE_TEST_CASE("embedding_bwd adds rows in order and sets all others to zero",
                   "[kernels][embedding]", float, bf16, f16) {
  const auto s = GENERATE(from_range(kSizes));
  const auto ids = test::rand_int<int32_t>(s.B * s.T, 1, 0, s.V - 1);
  const auto dy = test::randn<TestType>(s.B * s.T * s.C, 2);
  for (const Exec& exec : test::devices_with({&kernels::embedding_bwd})) {
    CAPTURE(s.B, s.T, s.V, s.C);
    const Grads set = run_bwd(exec, s, ids, dy, kNan), want_set = ref_bwd(s, ids, dy, 0.f);
    // Results are compared as numbers, not bits: where the reference computes 0 + -0 = 0, storing a
    // first row of -0 keeps -0.
    CHECK(test::max_error(set.table, test::to_f64(want_set.table)) == 0);
    CHECK(test::max_error(set.positions, test::to_f64(want_set.positions)) == 0);
    const Grads added = run_bwd(exec, s, ids, dy, 0.75f), want_added = ref_bwd(s, ids, dy, 0.75f);
    CHECK(test::same_bits(added.table, want_added.table));
    CHECK(test::same_bits(added.positions, want_added.positions));
  }
}

TEST_CASE("embedding_bwd has the same bits for any number of threads", "[kernels][embedding]") {
  const Sizes s = {.B = 4, .T = 64, .V = 50, .C = 33, .max_T = 64, .first = 0};
  const auto ids = test::rand_int<int32_t>(s.B * s.T, 1, 0, s.V - 1);
  const auto dy = test::randn<float>(s.B * s.T * s.C, 2);
  const Exec& exec = test::devices()[0];
  CHECK(test::same_bits_for_any_threads(
      exec, [&](const Exec& e) { return run_bwd(e, s, ids, dy, kNan).table; }));
  CHECK(test::same_bits_for_any_threads(
      exec, [&](const Exec& e) { return run_bwd(e, s, ids, dy, kNan).positions; }));
}

TEST_CASE("where ids cannot be looked at, one outside the table makes its row NaN",
          "[kernels][embedding]") {
  const Sizes s = {.B = 1, .T = 4, .V = 7, .C = 4, .max_T = 4, .first = 0};
  const std::vector<int32_t> ids = {3, 7, -1, 3};
  const auto table = test::randn<float>(s.V * s.C, 1), dy = test::randn<float>(s.T * s.C, 2);
  for (const Exec& exec : test::devices_with({&kernels::embedding_fwd, &kernels::embedding_bwd})) {
    if (exec.device.type == DeviceType::kCpu) continue;
    const auto y = run_fwd<float>(exec, s, ids, table, {});
    const auto d_table = run_bwd(exec, s, ids, dy, kNan).table;
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 4 == 1 || i / 4 == 2));
    for (size_t i = 0; i < d_table.size(); ++i) {
      CHECK(d_table[i] == (i / 4 == 3 ? dy[i % 4] + dy[12 + i % 4] : 0.f));
    }
  }
}

TEST_CASE("an id outside the table is named with its place", "[kernels][embedding]") {
  const Sizes s = {.B = 2, .T = 3, .V = 7, .C = 4, .max_T = 3, .first = 0};
  const Exec& exec = test::devices()[0];
  const auto table = test::randn<float>(28, 1);
  CHECK(test::message_of<DataError>([&] {
          run_fwd<float>(exec, s, {0, 1, 2, 3, 7, 5}, table, {});
        }) == "embedding_fwd: id [1, 1] is 7, expected 0 to 6");
  CHECK(test::message_of<DataError>([&] {
          run_bwd(exec, s, {0, 1, -1, 3, 4, 5}, test::randn<float>(24, 2), kNan);
        }) == "embedding_bwd: id [0, 2] is -1, expected 0 to 6");
  Sizes late = s;
  late.first = 1;
  CHECK(test::message_of<ShapeError>([&] {
          run_fwd<float>(exec, late, {0, 1, 2, 3, 4, 5}, table, test::randn<float>(12, 3));
        }) == "embedding_fwd: positions is fp32[3,4], expected rows for the positions 1 to 3");
}

}  // namespace shale
