#include "shale/kernels/grouped_gemm.h"

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::Epilogue;
using kernels::GroupedBy;
using test::DeviceArray;

struct Size {
  std::vector<int32_t> offsets;
  int64_t rows, n, k;
  int64_t groups() const { return std::ssize(offsets) - 1; }
};
const std::vector<Size> kSizes = {{{0, 0}, 0, 3, 2},
                                  {{0, 1}, 1, 1, 1},
                                  {{0, 3, 3, 10}, 12, 17, 5},
                                  {{0, 0, 64, 96}, 96, 64, 48},
                                  {{0, 130, 131, 131, 300}, 320, 96, 130}};

// Returns b [groups, k, n] as the transposes of weights [groups, n, k].
template <typename T>
View weights_view(const DeviceArray<T>& w, const Size& s) {
  return w.view({s.groups(), s.k, s.n}, {s.n * s.k, 1, s.k});
}

}  // namespace

// Operands are integers, so sums are exact in every dtype's accumulator; c is f32. For tf32 the
// operands differ from integers by amounts that rounding to tf32 removes.
TEMPLATE_TEST_CASE("a grouped product is the products of its groups, exactly", "[kernels][moe]",
                   float, bf16, f16) {
  const bool tf32 = std::is_same_v<TestType, float> && GENERATE(false, true);
  const auto off = [&](std::vector<TestType> values) {
    for (TestType& value : values) {
      if (tf32) value = TestType(test::to_f64(value) * (1 + 0x1p-13));
    }
    return values;
  };
  for (Exec exec : test::devices_with({&kernels::grouped_gemm})) {
    // GPUs before sm_80 do not support tf32.
    if (tf32 && exec.device.type != DeviceType::kCpu && exec.device.arch < 80) continue;
    exec.tf32 = tf32;
    for (const Size& s : kSizes) {
      CAPTURE(to_string(exec.device), s.rows, s.n, s.k);
      const auto a = test::rand_int<TestType>(s.rows * s.k, 1, -3, 3);
      const auto w = test::rand_int<TestType>(s.groups() * s.n * s.k, 2, -3, 3);
      const auto dy = test::rand_int<TestType>(s.rows * s.n, 3, -3, 3);
      const auto c = test::rand_int<float>(s.rows * s.n, 4, -3, 3);
      std::vector<double> rows = test::to_f64(c), inner(w.size());
      std::vector<double> back(size_t(s.rows * s.k));
      for (int64_t g = 0; g < s.groups(); ++g) {
        for (int64_t r = s.offsets[size_t(g)]; r < s.offsets[size_t(g + 1)]; ++r) {
          for (int64_t j = 0; j < s.n; ++j) {
            for (int64_t i = 0; i < s.k; ++i) {
              const auto at = size_t((g * s.n + j) * s.k + i);
              const double x = test::to_f64(a[size_t(r * s.k + i)]);
              rows[size_t(r * s.n + j)] += x * test::to_f64(w[at]);
              inner[at] += x * test::to_f64(dy[size_t(r * s.n + j)]);
              back[size_t(r * s.k + i)] +=
                  test::to_f64(dy[size_t(r * s.n + j)]) * test::to_f64(w[at]);
            }
          }
        }
      }
      const DeviceArray<int32_t> offsets(exec, s.offsets);
      const DeviceArray<TestType> da(exec, off(a)), dw(exec, off(w)), ddy(exec, off(dy));
      const DeviceArray<float> dc(exec, c), grad(exec, int64_t(w.size()));
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .a = da.view({s.rows, s.k}),
                                   .b = weights_view(dw, s),
                                   .c = dc.view({s.rows, s.n}),
                                   .accumulate = true});
      CHECK(dc.margins_intact());
      CHECK(test::max_error(dc.download(), rows) == 0);
      // Rows of dx outside all groups stay unchanged.
      const std::vector<float> untouched = test::poison<float>(s.rows * s.k);
      const DeviceArray<float> dx(exec, untouched);
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .a = ddy.view({s.rows, s.n}),
                                   .b = dw.view({s.groups(), s.n, s.k}),
                                   .c = dx.view({s.rows, s.k})});
      CHECK(dx.margins_intact());
      const int64_t own = s.offsets.back() * s.k;
      const std::vector<float> all = dx.download(), rest(all.begin() + own, all.end());
      back.resize(size_t(own));
      CHECK(test::max_error(std::vector<float>(all.begin(), all.begin() + own), back) == 0);
      CHECK(test::same_bits(rest, {untouched.begin() + own, untouched.end()}));
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .by = GroupedBy::kInner,
                                   .a = ddy.view({s.n, s.rows}, {1, s.n}),
                                   .b = da.view({s.rows, s.k}),
                                   .c = grad.view({s.groups(), s.n, s.k})});
      CHECK(grad.margins_intact());
      CHECK(test::max_error(grad.download(), inner) == 0);
    }
  }
}

// All offsets are multiples of 16; groups end in the middle of tiles and of stages, and some are
// empty.
TEMPLATE_TEST_CASE("each tile of grouped products gives the exact sums", "[kernels][moe]", bf16,
                   f16) {
  using kernels::GemmTile;
  const Size s = GENERATE(Size{{0, 0, 144, 160, 160, 304}, 320, 136, 72},
                          Size{{0, 16, 208}, 208, 260, 130}, Size{{0, 0, 0}, 64, 64, 64});
  const auto a = test::rand_int<TestType>(s.rows * s.k, 1, -2, 2);
  const auto w = test::rand_int<TestType>(s.groups() * s.n * s.k, 2, -2, 2);
  const auto dy = test::rand_int<TestType>(s.rows * s.n, 3, -2, 2);
  std::vector<double> rows(size_t(s.offsets.back() * s.n)), inner(w.size());
  for (int64_t g = 0; g < s.groups(); ++g) {
    for (int64_t r = s.offsets[size_t(g)]; r < s.offsets[size_t(g + 1)]; ++r) {
      for (int64_t at = 0; at < s.n * s.k; ++at) {
        const double x = test::to_f64(a[size_t(r * s.k + at % s.k)]);
        rows[size_t(r * s.n + at / s.k)] += x * test::to_f64(w[size_t(g * s.n * s.k + at)]);
        inner[size_t(g * s.n * s.k + at)] += x * test::to_f64(dy[size_t(r * s.n + at / s.k)]);
      }
    }
  }
  // The kernel rounds each exact sum once.
  std::vector<double> rounded;
  for (const double sum : rows) {
    rounded.push_back(test::to_f64(TestType(static_cast<float>(sum))));
  }
  for (const Exec& exec : test::devices_with({&kernels::grouped_gemm})) {
    if (exec.device.type == DeviceType::kCpu) continue;
    for (const GemmTile tile : {GemmTile::k64x64, GemmTile::k128x128, GemmTile::kHopper128x128,
                                GemmTile::kHopper128x256, GemmTile::kHopperPingPong128x128}) {
      if (!can_run(tile, kernels::gemm_means(exec.device))) continue;
      CAPTURE(to_string(exec.device), kernels::name_of(tile), s.rows, s.n, s.k);
      const DeviceArray<int32_t> offsets(exec, s.offsets);
      const DeviceArray<TestType> da(exec, a), dw(exec, w), ddy(exec, dy),
          c(exec, test::poison<TestType>(s.rows * s.n));
      const DeviceArray<float> grad(exec, int64_t(w.size()));
      kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                   .a = da.view({s.rows, s.k}),
                                   .b = weights_view(dw, s),
                                   .c = c.view({s.rows, s.n}),
                                   .tile = &tile});
      CHECK(c.margins_intact());
      const std::vector<TestType> all = c.download();
      const auto end = all.begin() + std::ssize(rows);
      CHECK(test::max_error(std::vector<TestType>(all.begin(), end), rounded) == 0);
      const std::vector<TestType> rest(end, all.end());
      CHECK(test::same_bits(rest, test::poison<TestType>(std::ssize(rest))));
      const kernels::GroupedGemmArgs inner_args = {.offsets = offsets.view(),
                                                   .by = GroupedBy::kInner,
                                                   .a = ddy.view({s.n, s.rows}, {1, s.n}),
                                                   .b = da.view({s.rows, s.k}),
                                                   .c = grad.view({s.groups(), s.n, s.k}),
                                                   .align = 16,
                                                   .tile = &tile};
      if (tile == GemmTile::kHopper128x256 ||
          // These tiles have too few registers for this kind of GEMM.
          tile == GemmTile::kHopperPingPong128x128) {
        CHECK_THROWS_AS(kernels::grouped_gemm(exec, inner_args), UnavailableError);
        continue;
      }
      kernels::grouped_gemm(exec, inner_args);
      CHECK(grad.margins_intact());
      CHECK(test::max_error(grad.download(), inner) == 0);
    }
  }
}

namespace {

// Matrices of a SwiGLU GEMM or of its backward: each group has some rows of the activations, and a
// separate weight matrix.
struct SwiGluArrays {
  const Size& s;
  DeviceArray<float> a, gate, up, c, aux, aux_up, c_up;

  SwiGluArrays(const Exec& exec, const Size& size)
      : s(size),
        a(exec, test::randn<float>(s.rows * s.k, 1)),
        gate(exec, test::randn<float>(s.groups() * s.n * s.k, 2)),
        up(exec, test::randn<float>(s.groups() * s.n * s.k, 3)),
        c(exec, test::poison<float>(s.rows * s.n)),
        aux(exec, test::randn<float>(s.rows * s.n, 4)),
        aux_up(exec, test::randn<float>(s.rows * s.n, 5)),
        c_up(exec, test::poison<float>(s.rows * s.n)) {}

  kernels::GroupedGemmArgs grouped(const DeviceArray<int32_t>& offsets, Epilogue epilogue) const {
    const bool is_forward = epilogue == Epilogue::kSwiGlu;
    const Shape rows{s.rows, s.n};
    return {.offsets = offsets.view(),
            .a = a.view({s.rows, s.k}),
            .b = weights_view(gate, s),
            .c = c.view(rows),
            .epilogue = epilogue,
            .aux = aux.view(rows),
            .b_up = is_forward ? weights_view(up, s) : View{},
            .aux_up = aux_up.view(rows),
            .c_up = is_forward ? View{} : c_up.view(rows)};
  }
  // Returns all outputs, concatenated.
  std::vector<float> results() const {
    std::vector<float> all;
    for (const DeviceArray<float>* array : {&c, &aux, &aux_up, &c_up}) {
      CHECK(array->margins_intact());
      const std::vector<float> values = array->download();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

}  // namespace

TEST_CASE("a grouped SwiGLU product has the bits of each group's own, for any threads",
          "[kernels][moe]") {
  const Size& s = kSizes.back();
  const Epilogue epilogue = GENERATE(Epilogue::kSwiGlu, Epilogue::kDSwiGlu);
  for (const Exec& device : test::devices_with({&kernels::grouped_gemm, &kernels::gemm})) {
    const DeviceArray<int32_t> offsets(device, s.offsets);
    const auto run = [&](const Exec& exec) {
      const SwiGluArrays arrays(exec, s);
      kernels::grouped_gemm(exec, arrays.grouped(offsets, epilogue));
      return arrays.results();
    };
    if (device.device.type == DeviceType::kCpu) {
      CHECK(test::same_bits_for_any_threads(device, run));
    }
    const SwiGluArrays arrays(device, s);
    const kernels::GroupedGemmArgs grouped = arrays.grouped(offsets, epilogue);
    for (int64_t g = 0; g < s.groups(); ++g) {
      const int64_t begin = s.offsets[size_t(g)], end = s.offsets[size_t(g + 1)];
      if (begin < end) kernels::gemm(device, kernels::group_of(grouped, g, begin, end));
    }
    // Neither grouped_gemm nor the gemm of a group writes rows outside all groups, so these rows
    // are equal too.
    CHECK(test::same_bits(run(device), arrays.results()));
  }
}

TEST_CASE("grouped products refuse matrices that do not lie one after the other",
          "[kernels][moe]") {
  const Exec& exec = test::devices().front();
  const DeviceArray<int32_t> offsets(exec, {0, 1, 2});
  const DeviceArray<float> a(exec, 2 * 3), b(exec, 100), c(exec, 2 * 4);
  const auto run = [&](const View& weights) {
    kernels::grouped_gemm(
        exec, {.offsets = offsets.view(), .a = a.view({2, 3}), .b = weights, .c = c.view({2, 4})});
  };
  CHECK_THROWS_AS(run(b.view({2, 3, 4}, {20, 4, 1})), ShapeError);
  CHECK_THROWS_AS(run(b.view({2, 3, 4}, {24, 8, 2})), ShapeError);
  // This call is refused: elements in a line of a are not contiguous.
  CHECK_THROWS_AS(kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                               .by = GroupedBy::kInner,
                                               .a = a.view({3, 2}),
                                               .b = c.view({2, 4}),
                                               .c = b.view({2, 3, 4})}),
                  ShapeError);
  // This call is refused: offsets are not multiples of `align`.
  CHECK_THROWS_AS(kernels::grouped_gemm(exec, {.offsets = offsets.view(),
                                               .a = a.view({2, 3}),
                                               .b = b.view({2, 3, 4}),
                                               .c = c.view({2, 4}),
                                               .align = 2}),
                  DataError);
}

}  // namespace shale
