#include "shale/kernels/reduce_dims.h"

#include <cmath>
#include <limits>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::ReduceOp;
using test::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Shape and strides of x, and the dimensions that are reduced.
struct Case {
  Shape shape, strides;
  std::vector<bool> reduced;

  Shape output() const {
    Shape y = shape;
    for (int d = 0; d < y.ndim(); ++d) {
      if (reduced[size_t(d)]) y[d] = 1;
    }
    return y;
  }
  int64_t elements() const {  // number of elements in memory from x's first to its last
    int64_t last = 0;
    for (int d = 0; d < shape.ndim(); ++d) last += (shape[d] - 1) * strides[d];
    return shape.numel() == 0 ? 0 : last + 1;
  }
};

Case dense(const Shape& shape, std::vector<bool> reduced) {
  return {shape, contiguous_strides(shape), std::move(reduced)};
}

const std::vector<Case> kCases = {
    dense({1}, {true}),
    dense({7}, {false}),
    dense({0, 3}, {true, false}),
    dense({3, 0}, {true, false}),
    dense({5000}, {true}),
    dense({3, 17}, {false, true}),
    dense({3, 1500}, {false, true}),
    dense({17, 3}, {true, false}),
    dense({2000, 5}, {true, false}),
    dense({300, 257}, {true, false}),
    dense({4, 5, 6}, {true, false, true}),
    dense({4, 5, 6}, {false, true, false}),
    dense({4, 1, 6}, {true, true, true}),
    dense({2, 3, 4, 5, 6, 7}, {true, false, true, false, false, true}),
    {{5, 6, 7}, {1, 5, 30}, {false, true, false}},  // transposed
    {{5, 6, 7}, {1, 5, 30}, {true, false, false}},
    {{40, 30}, {60, 2}, {true, false}},  // every second column
    {{40, 30}, {60, 2}, {false, true}},
    {{4, 9, 8}, {0, 8, 1}, {true, false, false}},  // broadcast
};

// Calls fn(index in x, index in y) for all elements of x in order.
template <class Fn>
void for_elements(const Case& c, const Fn& fn) {
  const Shape y = c.output();
  const Shape y_strides = contiguous_strides(y);
  for (int64_t i = 0; i < c.shape.numel(); ++i) {
    int64_t rest = i, from = 0, to = 0;
    for (int d = c.shape.ndim(); d-- > 0;) {
      const int64_t at = rest % c.shape[d];
      rest /= c.shape[d];
      from += at * c.strides[d];
      if (!c.reduced[size_t(d)]) to += at * y_strides[d];
    }
    fn(from, to);
  }
}

template <typename T>
std::vector<double> reference(const Case& c, ReduceOp op, const std::vector<T>& x) {
  const double first = op == ReduceOp::kSum   ? 0
                       : op == ReduceOp::kMax ? -std::numeric_limits<double>::infinity()
                                              : std::numeric_limits<double>::infinity();
  std::vector<double> y(size_t(c.output().numel()), first);
  for_elements(c, [&](int64_t from, int64_t to) {
    const double value = test::to_f64(x[size_t(from)]);
    double& total = y[size_t(to)];
    total = op == ReduceOp::kSum   ? total + value
            : op == ReduceOp::kMax ? std::max(total, value)
                                   : std::min(total, value);
  });
  return y;
}

template <typename Y, typename T>
std::vector<Y> run_reduce(const Exec& exec, const Case& c, ReduceOp op, const std::vector<T>& x,
                          float scale = 1) {
  const DeviceArray<T> dx(exec, x);
  const DeviceArray<Y> dy(exec, c.output().numel());
  kernels::reduce_dims(
      exec, {.x = dx.view(c.shape, c.strides), .y = dy.view(c.output()), .op = op, .scale = scale});
  CHECK(dy.margins_intact());
  return dy.download();
}

}  // namespace

TEMPLATE_TEST_CASE("reduce_dims of small integers is exact on every device", "[kernels][reduce]",
                   float, bf16, f16) {
  for (const Exec& exec : test::devices_with({&kernels::reduce_dims})) {
    for (const Case& c : kCases) {
      const auto x = test::rand_int<TestType>(c.elements(), 1, -8, 8);
      CAPTURE(to_string(exec.device), to_string(c.shape), to_string(c.strides));
      CHECK(test::max_error(run_reduce<float>(exec, c, ReduceOp::kSum, x),
                            reference(c, ReduceOp::kSum, x)) == 0);
      if (c.shape.numel() == 0) continue;
      CHECK(test::max_error(run_reduce<TestType>(exec, c, ReduceOp::kMax, x),
                            reference(c, ReduceOp::kMax, x)) == 0);
      CHECK(test::max_error(run_reduce<TestType>(exec, c, ReduceOp::kMin, x),
                            reference(c, ReduceOp::kMin, x)) == 0);
    }
  }
}

TEST_CASE("reduce_dims adds long sums to the rounding of two short ones", "[kernels][reduce]") {
  const int64_t n = 200000;
  const auto ones = std::vector<float>(size_t(n), 0.1f);
  for (const Exec& exec : test::devices_with({&kernels::reduce_dims})) {
    for (const Case& c : {dense({n}, {true}), dense({n / 4, 4}, {true, false})}) {
      const auto want = reference(c, ReduceOp::kSum, ones);
      const auto got = run_reduce<float>(exec, c, ReduceOp::kSum, ones, 0.5f);
      // A first sum has at most 1024 roundings, and so has the sum of such sums.
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(std::abs(got[i] - 0.5 * want[i]) <= 0.5 * want[i] * 2 * 1024 * 0x1p-24);
      }
    }
  }
}

TEST_CASE("reduce_dims rounds once, and has the same bits for any number of threads",
          "[kernels][reduce]") {
  const Exec& cpu = test::devices()[0];
  for (const Case& c : kCases) {
    const auto x = test::randn<float>(c.elements(), 1);
    CAPTURE(to_string(c.shape), to_string(c.strides));
    CHECK(test::same_bits_for_any_threads(
        cpu, [&](const Exec& exec) { return run_reduce<float>(exec, c, ReduceOp::kSum, x); }));
    const auto wide = run_reduce<float>(cpu, c, ReduceOp::kSum, x);
    std::vector<bf16> rounded;
    for (const float value : wide) rounded.push_back(bf16(value));
    CHECK(test::same_bits(run_reduce<bf16>(cpu, c, ReduceOp::kSum, x), rounded));
  }
}

TEST_CASE("argmax is the first of the largest, and NaN is the largest", "[kernels][reduce]") {
  for (const Exec& exec : test::devices_with({&kernels::reduce_dims})) {
    const auto argmax = [&](const Case& c, const std::vector<float>& x) {
      return run_reduce<int32_t>(exec, c, ReduceOp::kArgMax, x);
    };
    CAPTURE(to_string(exec.device));
    const std::vector<float> x = {1, 7, 7, -INFINITY, -INFINITY, -INFINITY, 5, kNan, kNan};
    CHECK(argmax(dense({3, 3}, {false, true}), x) == std::vector<int32_t>{1, 0, 1});
    CHECK(argmax(dense({3, 3}, {true, false}), x) == std::vector<int32_t>{2, 2, 2});
    CHECK(argmax(dense({1, 1}, {false, true}), {3}) == std::vector<int32_t>{0});
    auto longer = test::randn<float>(3 * 5000, 1);
    longer[4999] = longer[5000] = longer[12345] = 100;
    CHECK(argmax(dense({3, 5000}, {false, true}), longer) == std::vector<int32_t>{4999, 0, 2345});
  }
}

TEST_CASE("the largest of values with a NaN is NaN", "[kernels][reduce]") {
  const int64_t n = GENERATE(1, 40, 3000);
  auto x = test::randn<float>(2 * n, 1);
  x[size_t(n / 2)] = kNan;
  for (const Exec& exec : test::devices_with({&kernels::reduce_dims})) {
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
      const auto y = run_reduce<float>(exec, dense({2, n}, {false, true}), op, x);
      CAPTURE(to_string(exec.device), int(op), n);
      CHECK(std::isnan(y[0]));
      CHECK_FALSE(std::isnan(y[1]));
    }
  }
}

TEST_CASE("reduce_dims names the argument that is wrong", "[kernels][reduce]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 8);
  const auto message = [&](const kernels::ReduceDimsArgs& args) {
    return test::message_of<Error>([&] { kernels::reduce_dims(exec, args); });
  };
  CHECK(message({.x = a.view({2, 4}), .y = a.view({2, 2})}) ==
        "reduce_dims: y is fp32[2,2], expected in each dimension the size of x, fp32[2,4], or 1");
  CHECK(message({.x = a.view({2, 4}), .y = a.view({4})}) ==
        "reduce_dims: y is fp32[4], expected in each dimension the size of x, fp32[2,4], or 1");
  CHECK(message({.x = a.view({0, 4}), .y = a.view({1, 4}), .op = ReduceOp::kMax}) ==
        "reduce_dims: x is fp32[0,4], expected at least one element for a maximum or minimum");
  CHECK(test::contains(message({.x = a.view({4}), .y = a.view({1}), .op = ReduceOp::kArgMax}),
                       "reduce_dims: y is fp32[1], expected"));
}

}  // namespace shale
