#include "shale/kernels/index.h"

#include <cmath>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

struct Size {
  int64_t outer, count, picks, inner;
};
const std::vector<Size> kSizes = {{0, 3, 2, 4}, {1, 1, 1, 1}, {2, 5, 3, 1},   {1, 7, 40, 300},
                                  {3, 4, 6, 5}, {2, 3, 0, 4}, {1, 9, 5000, 1}};

// Returns a view of an index. With is_list there is one number for each k, otherwise one for every
// element.
View index_view(const DeviceArray<int32_t>& index, Size n, bool is_list) {
  const Shape shape = {n.outer, n.picks, n.inner};
  return is_list ? index.view(shape, {0, 1, 0}) : index.view(shape);
}
size_t index_at(Size n, bool is_list, int64_t o, int64_t k, int64_t i) {
  return size_t(is_list ? k : (o * n.picks + k) * n.inner + i);
}
std::vector<int32_t> random_index(Size n, bool is_list) {
  const int64_t total = is_list ? n.picks : n.outer * n.picks * n.inner;
  return test::rand_int<int32_t>(total, 3, 0, n.count - 1);
}

// Calls fn(index in [outer, count, inner], index in [outer, picks, inner]) in order of k.
template <class Fn>
void for_picks(Size n, bool is_list, const std::vector<int32_t>& index, const Fn& fn) {
  for (int64_t o = 0; o < n.outer; ++o) {
    for (int64_t k = 0; k < n.picks; ++k) {
      for (int64_t i = 0; i < n.inner; ++i) {
        const int64_t pick = index[index_at(n, is_list, o, k, i)];
        fn(size_t((o * n.count + pick) * n.inner + i), size_t((o * n.picks + k) * n.inner + i));
      }
    }
  }
}

template <typename T>
std::vector<float> run_scatter(const Exec& exec, Size n, bool is_list,
                               const std::vector<int32_t>& index, const std::vector<T>& x,
                               const std::vector<float>& y, bool replace = false) {
  const DeviceArray<T> dx(exec, x);
  const DeviceArray<float> dy(exec, y);
  const DeviceArray<int32_t> di(exec, index);
  kernels::scatter_add(exec, {.x = dx.view({n.outer, n.picks, n.inner}),
                              .index = index_view(di, n, is_list),
                              .y = dy.view({n.outer, n.count, n.inner}),
                              .replace = replace});
  CHECK(dy.margins_intact());
  return dy.download();
}

}  // namespace

TEMPLATE_TEST_CASE("gather picks, and scatter_add adds or replaces, exactly on every device",
                   "[kernels][index]", float, bf16, f16) {
  const bool is_list = GENERATE(false, true);
  for (const Exec& exec : test::devices_with({&kernels::gather, &kernels::scatter_add})) {
    for (const Size& n : kSizes) {
      CAPTURE(to_string(exec.device), n.outer, n.count, n.picks, n.inner, is_list);
      const auto index = random_index(n, is_list);
      const auto x = test::rand_int<TestType>(n.outer * n.count * n.inner, 1, -8, 8);
      const auto source = test::rand_int<TestType>(n.outer * n.picks * n.inner, 2, -8, 8);
      const auto y = test::rand_int<float>(n.outer * n.count * n.inner, 4, -8, 8);
      std::vector<double> picked(source.size()), sums = test::to_f64(y), last = sums;
      for_picks(n, is_list, index, [&](size_t of, size_t at) {
        picked[at] = test::to_f64(x[of]);
        sums[of] += test::to_f64(source[at]);
        last[of] = test::to_f64(source[at]);
      });
      const DeviceArray<TestType> dx(exec, x), out(exec, int64_t(source.size()));
      const DeviceArray<int32_t> di(exec, index);
      kernels::gather(exec, {.x = dx.view({n.outer, n.count, n.inner}),
                             .index = index_view(di, n, is_list),
                             .y = out.view({n.outer, n.picks, n.inner})});
      CHECK(out.margins_intact());
      CHECK(test::max_error(out.download(), picked) == 0);
      CHECK(test::max_error(run_scatter(exec, n, is_list, index, source, y), sums) == 0);
      CHECK(test::max_error(run_scatter(exec, n, is_list, index, source, y, true), last) == 0);
    }
  }
}

TEST_CASE("scatter_add adds in order of the index, with the same bits for any threads",
          "[kernels][index]") {
  const Size n{2, 5, 400, 70};
  const auto index = random_index(n, false);
  const auto x = test::randn<float>(n.outer * n.picks * n.inner, 1);
  std::vector<float> want(size_t(n.outer * n.count * n.inner), 0.f);
  for_picks(n, false, index, [&](size_t of, size_t at) { want[of] += x[at]; });
  const std::vector<float> zeros(want.size(), 0.f);
  for (const Exec& exec : test::devices_with({&kernels::scatter_add})) {
    CHECK(test::same_bits(run_scatter(exec, n, false, index, x, zeros), want));
  }
  CHECK(test::same_bits_for_any_threads(test::devices()[0], [&](const Exec& exec) {
    return run_scatter(exec, n, false, index, x, zeros);
  }));
}

TEST_CASE("an index out of range is an error on the CPU, NaN or nothing elsewhere",
          "[kernels][index]") {
  const int32_t bad = GENERATE(-1, 3);
  for (const Exec& exec : test::devices_with({&kernels::gather, &kernels::scatter_add})) {
    const DeviceArray<float> x(exec, std::vector<float>{1, 2, 3}), y(exec, 2);
    const DeviceArray<float> sums(exec, std::vector<float>{0, 0, 0});
    const DeviceArray<int32_t> index(exec, std::vector<int32_t>{1, bad});
    const kernels::GatherArgs gather{
        .x = x.view({1, 3, 1}), .index = index.view({1, 2, 1}), .y = y.view({1, 2, 1})};
    const kernels::ScatterAddArgs scatter{.x = x.view({1, 2, 1}, {3, 1, 1}),
                                          .index = index.view({1, 2, 1}),
                                          .y = sums.view({1, 3, 1})};
    if (exec.device.type == DeviceType::kCpu) {
      CHECK(test::message_of<DataError>([&] { kernels::gather(exec, gather); }) ==
            cat("gather: index ", bad, ", expected 0 to 2"));
      CHECK(test::message_of<DataError>([&] { kernels::scatter_add(exec, scatter); }) ==
            cat("scatter_add: index ", bad, ", expected 0 to 2"));
      continue;
    }
    kernels::gather(exec, gather);
    kernels::scatter_add(exec, scatter);
    CHECK(y.download()[0] == 2);
    CHECK(std::isnan(y.download()[1]));
    CHECK(sums.download() == std::vector<float>{0, 1, 0});
  }
}

TEST_CASE("gather and scatter_add name the argument that is wrong", "[kernels][index]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 12);
  const DeviceArray<int32_t> index(exec, std::vector<int32_t>(12, 0));
  CHECK(test::message_of<ShapeError>([&] {
          kernels::gather(
              exec,
              {.x = a.view({2, 3, 2}), .index = index.view({2, 2, 1}), .y = a.view({2, 2, 2})});
        }) == "gather: index is int32[2,2,1], expected shape [2,2,2]");
  CHECK(test::message_of<ShapeError>([&] {
          kernels::scatter_add(
              exec,
              {.x = a.view({2, 1, 2}), .index = index.view({2, 2, 2}), .y = a.view({2, 3, 2})});
        }) == "scatter_add: x is fp32[2,1,2], expected shape [2,2,2]");
}

}  // namespace shale
