#include "kernels/tree_sum.h"

#include <cstring>
#include <vector>

#include "kernels/registry.h"
#include "runtime/base/error.h"
#include "test/support/catch.h"
#include "test/support/kernels.h"
#include "test/support/numbers.h"

namespace shale::test {
namespace {

// The documented tree, serially.
template <typename Acc>
Acc tree(const Acc* values, int64_t count) {
  if (count == 1) return values[0];
  int64_t left = 1;
  while (left * 2 < count) left *= 2;
  return static_cast<Acc>(tree(values, left) + tree(values + left, count - left));
}

template <typename In, typename Out>
void check_sum(int inputs, int64_t count, int outputs, bool stream, int64_t shift, int threads) {
  using Acc = std::conditional_t<sizeof(In) == 2, float, In>;
  CAPTURE(inputs, count, outputs, stream, shift, threads);
  std::vector<std::vector<In>> in;
  std::vector<std::vector<Out>> out(static_cast<size_t>(outputs),
                                    std::vector<Out>(static_cast<size_t>(count + shift + 1)));
  std::vector<const void*> in_data;
  std::vector<void*> out_data;
  for (int i = 0; i < inputs; ++i) {
    in.push_back(rand_int<In>(count + shift, static_cast<uint64_t>(i + 1), -99'999, 99'999));
    if constexpr (!std::is_integral_v<In>) {
      // Of different sizes, so that the order of additions shows.
      for (size_t k = 0; k < in.back().size(); ++k) {
        const double value = to_f64(in.back()[k]) / double(int64_t{1} << ((k + size_t(i)) % 20));
        in.back()[k] = make<In>(value);
      }
    }
  }
  for (auto& values : in) in_data.push_back(values.data() + shift);
  for (auto& values : out) out_data.push_back(values.data() + shift);

  const Exec exec{.device = {}, .threads = threads};
  kernels::tree_sum(exec, {.inputs = in_data,
                           .outputs = out_data,
                           .count = count,
                           .in_dtype = dtype_of<In>,
                           .out_dtype = dtype_of<Out>,
                           .stream = stream});
  std::vector<Acc> column(static_cast<size_t>(inputs));
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    for (int k = 0; k < inputs; ++k) {
      column[size_t(k)] = static_cast<Acc>(in[size_t(k)][size_t(i + shift)]);
    }
    const Out want = static_cast<Out>(tree(column.data(), inputs));
    for (const auto& values : out) {
      wrong += std::memcmp(&values[size_t(i + shift)], &want, sizeof want) != 0;
    }
  }
  CHECK(wrong == 0);
  for (const auto& values : out) CHECK(to_f64(values.back()) == 0);  // nothing past the end
}

}  // namespace

TEMPLATE_TEST_CASE("tree_sum adds in the documented tree", "[kernels]", float, bf16, f16, double,
                   int32_t, int64_t) {
  kernels::register_cpu_kernels();
  for (const int inputs : {1, 2, 3, 4, 5, 6, 7, 8, 13, 64, 100}) {
    for (const int64_t count : {0, 1, 15, 511, 512, 1300}) {
      check_sum<TestType, TestType>(inputs, count, inputs, /*stream=*/false, 0, 1);
    }
  }
}

TEST_CASE("tree_sum widens, narrows and streams", "[kernels]") {
  kernels::register_cpu_kernels();
  for (const int inputs : {1, 2, 3, 8}) {
    for (const bool stream : {false, true}) {
      for (const int64_t shift : {0, 3}) {
        check_sum<bf16, float>(inputs, 3001, 1, stream, shift, 1);
        check_sum<float, bf16>(inputs, 3001, 3, stream, shift, 1);
        check_sum<f16, f16>(inputs, 3001, 6, stream, shift, 1);
        check_sum<float, float>(inputs, 3001, 5, stream, shift, 1);
        check_sum<float, float>(inputs, 3001, 2, stream, shift, 1);
      }
    }
  }
}

TEST_CASE("tree_sum gives the same bits on any number of threads", "[kernels]") {
  kernels::register_cpu_kernels();
  check_sum<float, float>(3, 300'000, 2, /*stream=*/true, 1, 3);
  check_sum<float, float>(1, 300'000, 2, /*stream=*/true, 1, 3);
}

TEST_CASE("tree_sum works in place", "[kernels]") {
  kernels::register_cpu_kernels();
  for (const size_t inputs : {2u, 3u, 5u}) {
    std::vector<std::vector<float>> values;
    std::vector<void*> data;
    float sum = 0;
    for (size_t i = 0; i < inputs; ++i) {
      values.push_back(std::vector<float>(2000, static_cast<float>(i + 1)));
      sum += static_cast<float>(i + 1);
    }
    for (auto& v : values) data.push_back(v.data());
    const std::vector<const void*> in(data.begin(), data.end());
    kernels::tree_sum({.device = {}}, {.inputs = in, .outputs = data, .count = 2000});
    for (const auto& v : values) CHECK(v == std::vector<float>(2000, sum));
  }
}

TEST_CASE("tree_sum refuses what it cannot add", "[kernels]") {
  kernels::register_cpu_kernels();
  float value = 0;
  const void* in[] = {&value, &value};
  void* out[] = {&value};
  const auto sum = [&](DType from, DType to, size_t inputs) {
    kernels::tree_sum({.device = {}}, {.inputs = std::span(in, inputs),
                                       .outputs = out,
                                       .count = 1,
                                       .in_dtype = from,
                                       .out_dtype = to});
  };
  CHECK_THROWS_AS(sum(DType::kF32, DType::kF64, 2), DTypeError);
  CHECK_THROWS_AS(sum(DType::kU8, DType::kU8, 2), DTypeError);
  CHECK_THROWS_AS(sum(DType::kF32, DType::kF32, 0), ShapeError);
}

}  // namespace shale::test
