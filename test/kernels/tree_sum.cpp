#include "shale/kernels/tree_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/numbers.h"

namespace shale::test {
namespace {

// Adds serially, in the order of the documented tree.
template <typename Acc>
Acc tree(const Acc* values, int64_t count) {
  if (count == 1) return values[0];
  int64_t left = 1;
  while (left * 2 < count) left *= 2;
  return static_cast<Acc>(tree(values, left) + tree(values + left, count - left));
}

struct Sizes {
  int inputs;
  int64_t count;
  int outputs;
  bool stream = false;
  int64_t shift = 0;  // shift of all addresses, in elements
};

template <typename In, typename Out>
void check_sum(const Exec& exec, const Sizes& size) {
  using Acc = std::conditional_t<sizeof(In) == 2, float, In>;
  const auto [inputs, count, outputs, stream, shift] = size;
  CAPTURE(to_string(exec.device), exec.threads, inputs, count, outputs, stream, shift);
  std::vector<std::vector<In>> in;
  std::vector<DeviceArray<In>> from;
  std::vector<DeviceArray<Out>> to;
  std::vector<const void*> in_data;
  std::vector<void*> out_data;
  for (int i = 0; i < inputs; ++i) {
    in.push_back(rand_int<In>(count + shift, static_cast<uint64_t>(i + 1), -99'999, 99'999));
    if constexpr (!std::is_integral_v<In>) {
      // Inputs have different magnitudes, so that the order of additions matters.
      for (size_t k = 0; k < in.back().size(); ++k) {
        const double value = to_f64(in.back()[k]) / double(int64_t{1} << ((k + size_t(i)) % 20));
        in.back()[k] = make<In>(value);
      }
    }
    in_data.push_back(from.emplace_back(exec, in.back()).data() + shift);
  }
  for (int i = 0; i < outputs; ++i) {
    out_data.push_back(to.emplace_back(exec, count + shift).data() + shift);
  }
  kernels::tree_sum(exec, {.inputs = in_data,
                           .outputs = out_data,
                           .count = count,
                           .in_dtype = dtype_of<In>,
                           .out_dtype = dtype_of<Out>,
                           .stream = stream});
  std::vector<Out> want;
  std::vector<Acc> column(static_cast<size_t>(inputs));
  for (int64_t i = 0; i < count; ++i) {
    for (int k = 0; k < inputs; ++k) {
      column[size_t(k)] = static_cast<Acc>(in[size_t(k)][size_t(i + shift)]);
    }
    want.push_back(static_cast<Out>(tree(column.data(), inputs)));
  }
  for (const DeviceArray<Out>& values : to) {
    const std::vector<Out> got = values.download();
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Out sum = got[size_t(i + shift)];
      // The sum of opposite infinities is NaN, whose bits depend on the device.
      const bool both_nan = std::isnan(to_f64(sum)) && std::isnan(to_f64(want[size_t(i)]));
      wrong += !both_nan && std::memcmp(&sum, &want[size_t(i)], sizeof sum) != 0;
    }
    CHECK(wrong == 0);
    CHECK(values.margins_intact());
  }
}

}  // namespace

TEMPLATE_TEST_CASE("tree_sum adds in the documented tree on every device", "[kernels]", float, bf16,
                   f16, double, int32_t, int64_t) {
  for (const Exec& exec : devices_with({&kernels::tree_sum})) {
    for (const int inputs : {1, 2, 3, 4, 5, 6, 7, 8, 13, 64, 100}) {
      for (const int64_t count : {0, 1, 15, 511, 512, 1300}) {
        // At most 8 inputs are distinct; the rest repeat them. More would be slow to generate and
        // would test nothing new.
        check_sum<TestType, TestType>(exec, {inputs, count, std::min(inputs, 8)});
      }
    }
  }
}

TEST_CASE("tree_sum widens, narrows, streams, and copies any bytes", "[kernels]") {
  for (const Exec& exec : devices_with({&kernels::tree_sum})) {
    for (const int inputs : {1, 2, 3, 8}) {
      for (const bool stream : {false, true}) {
        for (const int64_t shift : {0, 3}) {
          check_sum<bf16, float>(exec, {inputs, 3001, 1, stream, shift});
          check_sum<float, bf16>(exec, {inputs, 3001, 3, stream, shift});
          check_sum<f16, f16>(exec, {inputs, 3001, 6, stream, shift});
          check_sum<float, float>(exec, {inputs, 3001, 5, stream, shift});
          check_sum<float, float>(exec, {inputs, 3001, 2, stream, shift});
        }
      }
    }
    for (const int64_t shift : {0, 1, 2})
      check_sum<uint8_t, uint8_t>(exec, {1, 3002, 2, false, shift});
  }
}

TEST_CASE("tree_sum gives the same bits on any number of threads", "[kernels]") {
  const Exec exec = with_threads(devices()[0], 3);
  check_sum<float, float>(exec, {3, 300'000, 2, /*stream=*/true, 1});
  check_sum<float, float>(exec, {1, 300'000, 2, /*stream=*/true, 1});
}

TEST_CASE("tree_sum works in place", "[kernels]") {
  for (const Exec& exec : devices_with({&kernels::tree_sum})) {
    for (const size_t inputs : {2u, 3u, 5u}) {
      std::vector<DeviceArray<float>> values;
      std::vector<void*> data;
      float sum = 0;
      for (size_t i = 0; i < inputs; ++i) {
        const auto value = static_cast<float>(i + 1);
        data.push_back(values.emplace_back(exec, std::vector<float>(2000, value)).data());
        sum += value;
      }
      const std::vector<const void*> in(data.begin(), data.end());
      kernels::tree_sum(exec, {.inputs = in, .outputs = data, .count = 2000});
      for (const auto& v : values) CHECK(v.download() == std::vector<float>(2000, sum));
    }
  }
}

TEST_CASE("tree_sum refuses what it cannot add", "[kernels]") {
  for (const Exec& exec : devices_with({&kernels::tree_sum})) {
    float value = 0;
    const std::vector<const void*> in(129, &value);
    void* out[] = {&value};
    const auto sum = [&](DType from, DType to, size_t inputs) {
      kernels::tree_sum(exec, {.inputs = std::span(in).first(inputs),
                               .outputs = out,
                               .count = 0,
                               .in_dtype = from,
                               .out_dtype = to});
    };
    CHECK_THROWS_AS(sum(DType::kF32, DType::kF64, 2), DTypeError);
    CHECK_THROWS_AS(sum(DType::kU8, DType::kU8, 2), DTypeError);
    CHECK_THROWS_AS(sum(DType::kF32, DType::kF32, 0), ShapeError);
    if (exec.device.type == DeviceType::kCpu) continue;
    CHECK(message_of<ShapeError>([&] { sum(DType::kF32, DType::kF32, 129); }) ==
          "tree_sum: 129 inputs and 1 outputs, expected at most 128 of each on a GPU");
  }
}

}  // namespace shale::test
