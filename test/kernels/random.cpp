#include "shale/kernels/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

constexpr uint64_t kSeed = 0xfeedfacecafe, kStream = 0x123456789abcdef0ull;

template <typename T>
std::vector<T> run(const Exec& exec, int64_t n, int64_t first, float mean = 0, float std = 1,
                   uint64_t seed = kSeed, uint64_t stream = kStream) {
  const DeviceArray<T> y(exec, n);
  kernels::random_normal(
      exec,
      {.y = y.view(), .seed = seed, .stream = stream, .first = first, .mean = mean, .std = std});
  CHECK(y.margins_intact());
  return y.download();
}

// Returns normal number `element` as kernels/random.h defines it: a pair of words gives a pair of
// numbers.
double reference(int64_t element) {
  const auto group = static_cast<uint64_t>(element / 4);
  const PhiloxCounter words =
      philox({uint32_t(group), uint32_t(group >> 32), uint32_t(kStream), uint32_t(kStream >> 32)},
             rng_key(kSeed, RngDomain::kInit));
  const size_t pair = element % 4 < 2 ? 0 : 2;
  const double radius = std::sqrt(-2 * std::log(1 - double{uniform_f32(words[pair])}));
  const double angle = 2 * std::numbers::pi * double{uniform_f32(words[pair + 1])};
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace

TEST_CASE("random_normal makes the numbers that its header defines", "[kernels][random]") {
  const int64_t first =
      GENERATE(as<int64_t>{}, 0, 1, 1023, 777777, int64_t{1} << 34, (int64_t{1} << 34) - 2);
  const int64_t n = GENERATE(as<int64_t>{}, 0, 1, 7, 5000);
  std::vector<double> want;
  for (int64_t i = 0; i < n; ++i) want.push_back(0.5 + 2 * reference(first + i));
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    CAPTURE(first, n);
    // The logarithm is off by 2 ulp, which the root halves. The sine is off by 2 ulp. With two
    // roundings, that is less than 6 ulp of values below 12.
    CHECK(test::max_error(run<float>(exec, n, first, 0.5f, 2.f), want) <=
          6 * 8 * test::ulp<float>());
  }
}

TEST_CASE("random_normal makes uniform numbers of the words themselves", "[kernels][random]") {
  const int64_t first = GENERATE(as<int64_t>{}, 0, 3, 1022), n = 3000;
  const auto group = [&](int64_t element) {
    const auto number = static_cast<uint64_t>(element / 4);
    return philox(
        {uint32_t(number), uint32_t(number >> 32), uint32_t(kStream), uint32_t(kStream >> 32)},
        rng_key(kSeed, RngDomain::kInit));
  };
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    const DeviceArray<float> y(exec, n);
    kernels::random_normal(exec, {.y = y.view(),
                                  .seed = kSeed,
                                  .stream = kStream,
                                  .first = first,
                                  .mean = -2,
                                  .std = 6,
                                  .uniform = true});
    CHECK(y.margins_intact());
    const auto found = y.download();
    for (int64_t i = 0; i < n; ++i) {
      const float u = uniform_f32(group(first + i)[size_t((first + i) % 4)]);
      CHECK(found[size_t(i)] == std::fma(u, 6.f, -2.f));
    }
  }
}

TEST_CASE("an element of random_normal does not depend on the range", "[kernels][random]") {
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    const auto whole = run<float>(exec, 6000, 100);
    for (const int64_t begin : {1, 2, 3, 5, 924, 925, 4000}) {
      for (const int64_t n : {1, 5, 16, 1999}) {
        const auto part = run<float>(exec, n, 100 + begin);
        CHECK(std::equal(part.begin(), part.end(), whole.begin() + begin));
      }
    }
  }
}

TEST_CASE("a box of a matrix has the elements that the matrix has there", "[kernels][random]") {
  // Columns: first element, elements per row, row stride, rows. Cases: aligned, ragged, longer than
  // a block.
  const auto [first, run_length, stride, rows] = GENERATE(table<int64_t, int64_t, int64_t, int64_t>(
      {{8, 4, 16, 5}, {3, 5, 7, 9}, {1020, 64, 64, 3}, {5, 2049, 3001, 4}, {16, 192, 768, 40}}));
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    const auto whole = run<float>(exec, (rows - 1) * stride + run_length, first);
    const DeviceArray<float> y(exec, rows * run_length);
    kernels::random_normal(exec, {.y = y.view(),
                                  .seed = kSeed,
                                  .stream = kStream,
                                  .first = first,
                                  .run = run_length,
                                  .stride = stride});
    CHECK(y.margins_intact());
    const auto box = y.download();
    for (int64_t i = 0; i < rows * run_length; ++i) {
      const int64_t place = i / run_length * stride + i % run_length;
      REQUIRE(box[size_t(i)] == whole[size_t(place)]);
    }
    CHECK_THROWS_AS(kernels::random_normal(exec, {.y = y.view(), .run = 5, .stride = 4}),
                    ShapeError);
  }
}

TEMPLATE_TEST_CASE("random_normal rounds its f32 numbers to the dtype", "[kernels][random]", bf16,
                   f16) {
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    const auto wide = run<float>(exec, 3001, 5);
    std::vector<TestType> want;
    for (const float value : wide) want.push_back(TestType(value));
    CHECK(test::same_bits(run<TestType>(exec, 3001, 5), want));
  }
}

TEST_CASE("random_normal is normal, and other seeds and streams are independent",
          "[kernels][random]") {
  const int64_t n = 1 << 20;
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    const auto x = run<float>(exec, n, 0);
    const auto moments = [&](const std::vector<float>& y) {
      double sum = 0, product = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        sum += double{y[i]};
        product += double{y[i]} * double{x[i]};
      }
      return std::pair{sum / double(n), product / double(n)};
    };
    // 5 standard deviations of the mean of 2^20 values are 5 / 1024; for squares they are sqrt 2
    // times that.
    CHECK(std::abs(moments(x).first) < 5.0 / 1024);
    CHECK(std::abs(moments(x).second - 1) < 7.1 / 1024);
    for (const auto& other : {run<float>(exec, n, 0, 0, 1, kSeed + 1), run<float>(exec, n, n),
                              run<float>(exec, n, 0, 0, 1, kSeed, kStream + 1)}) {
      CHECK(std::abs(moments(other).second) < 5.0 / 1024);
    }
    const auto beyond = std::count_if(x.begin(), x.end(), [](float v) { return std::abs(v) > 2; });
    // Of n = 2^20 numbers, a fraction of 0.0455 is beyond 2. Its relative standard deviation is 1 /
    // sqrt(2^20 * 0.0455) = 1 / 218.
    CHECK(std::abs(double(beyond) / double(n) - 0.0455) < 5 * 0.0455 / 218);
  }
}

TEST_CASE("random_normal has the CPU's bits on every device", "[kernels][random]") {
  if (!__builtin_cpu_supports("fma")) {
    WARN("skipped: this CPU rounds twice where a GPU has a fused multiply-add");
    return;
  }
  const auto want = run<float>(test::devices()[0], 20001, 3, 0.25f, 0.02f);
  for (const Exec& exec : test::devices_with({&kernels::random_normal})) {
    CHECK(test::same_bits(run<float>(exec, 20001, 3, 0.25f, 0.02f), want));
  }
}

TEST_CASE("random_normal has the same bits for any number of threads", "[kernels][random]") {
  CHECK(test::same_bits_for_any_threads(test::devices()[0],
                                        [](const Exec& e) { return run<float>(e, 100003, 17); }));
}

TEST_CASE("random_normal needs floats and a first element from 0 on", "[kernels][random]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<int32_t> ints(exec, 4);
  CHECK(test::message_of<DTypeError>([&] { kernels::random_normal(exec, {.y = ints.view()}); }) ==
        "random_normal: y is int32[4], expected fp32 or bf16 or fp16");
  CHECK(test::message_of<ShapeError>([&] { run<float>(exec, 4, -1); }) ==
        "random_normal: first is -1, expected 0 or more");
}

}  // namespace shale
