#include "shale/kernels/adafactor.h"

#include <cmath>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::MatrixRange;
using test::DeviceArray;

constexpr float kEps = 1e-30f, kClipRms = 0.5f, kDecay = 0.1f;

StepState step_state() {
  return {.lr = 2e-3f, .bias_correction2 = 0.3f, .clip_factor = 0.7f};
}

struct Size {
  int64_t rows, cols;
};

template <typename Grad>
struct Case {
  Size size;
  std::vector<float> w;
  std::vector<Grad> g;
  std::vector<float> row, col;
};

template <typename Grad>
Case<Grad> make_case(Size size) {
  const int64_t n = size.rows * size.cols;
  Case<Grad> c{size, test::randn<float>(n, 1), test::randn<Grad>(n, 2),
               test::randn<float>(size.rows, 3), test::randn<float>(size.cols, 4)};
  for (float& x : c.row) x = x * x + 0.01f;
  for (float& x : c.col) x = x * x + 0.01f;
  return c;
}

struct Result {
  std::vector<float> row, col, master;
  std::vector<bf16> param;
};

// Runs one Adafactor step on a matrix that is split into parts ending at `cuts`, as if ranks held
// the parts.
template <typename Grad>
Result run(const Exec& base, const Case<Grad>& c, std::vector<int64_t> cuts = {},
           const StepState& state = step_state()) {
  const test::DeviceStep step(base, state);
  const Exec& exec = step.exec();
  const auto n = int64_t(c.w.size());
  const DeviceArray<float> master(base, c.w), row(base, c.row), col(base, c.col);
  const DeviceArray<Grad> grad(base, c.g);
  const DeviceArray<float> new_row(base, std::vector<float>(c.row.size()));
  const DeviceArray<float> new_col(base, std::vector<float>(c.col.size()));
  const DeviceArray<float> sum(base, std::vector<float>(1));
  const DeviceArray<bf16> param(base, test::poison<bf16>(n));
  cuts.push_back(n);
  const auto for_parts = [&](const auto& fn) {
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      const MatrixRange part{.rows = c.size.rows, .cols = c.size.cols, .first = begin};
      fn(part, [&](const auto& array) { return array.view().flat(begin, end - begin); });
      begin = end;
    }
  };
  for_parts([&](const MatrixRange& part, const auto& span) {
    kernels::adafactor_means(exec, {.grad = span(grad),
                                    .row_mean = new_row.view(),
                                    .col_mean = new_col.view(),
                                    .part = part,
                                    .eps = kEps});
  });
  kernels::adafactor_average(exec, {.newest = new_row.view(), .mean = row.view()});
  kernels::adafactor_average(exec, {.newest = new_col.view(), .mean = col.view()});
  for_parts([&](const MatrixRange& part, const auto& span) {
    kernels::adafactor_squares(exec, {.grad = span(grad),
                                      .row = row.view(),
                                      .col = col.view(),
                                      .sum = sum.view({}),
                                      .part = part,
                                      .eps = kEps});
  });
  for_parts([&](const MatrixRange& part, const auto& span) {
    kernels::adafactor(exec, {.master = span(master),
                              .grad = span(grad),
                              .row = row.view(),
                              .col = col.view(),
                              .square_sum = sum.view({}),
                              .param = span(param),
                              .part = part,
                              .clip_rms = kClipRms,
                              .weight_decay = kDecay});
  });
  CHECK((master.margins_intact() && param.margins_intact() && row.margins_intact() &&
         col.margins_intact() && new_row.margins_intact() && new_col.margins_intact() &&
         sum.margins_intact()));
  return {row.download(), col.download(), master.download(), param.download()};
}

struct Reference {
  std::vector<double> row, col, master;
};

// Computes the step as algorithm 4 of the paper (arXiv:1804.04235) states it.
template <typename Grad>
Reference reference(const Case<Grad>& c) {
  const auto [rows, cols] = c.size;
  const StepState s = step_state();
  const double gamma = double{s.bias_correction2};
  Reference out{test::to_f64(c.row), test::to_f64(c.col), {}};
  for (double& r : out.row) r *= 1 - gamma;
  for (double& x : out.col) x *= 1 - gamma;
  std::vector<double> g;
  for (const Grad x : c.g) g.push_back(double{s.clip_factor} * test::to_f64(x));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const double square = g[size_t(i * cols + j)] * g[size_t(i * cols + j)] + double{kEps};
      out.row[size_t(i)] += gamma * square / double(cols);
      out.col[size_t(j)] += gamma * square / double(rows);
    }
  }
  double mean_row = 0, squares = 0;
  for (const double r : out.row) mean_row += r / double(rows);
  std::vector<double> u;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const double v = out.row[size_t(i / cols)] * out.col[size_t(i % cols)] / mean_row;
    u.push_back(g[size_t(i)] / std::sqrt(v));
    squares += u.back() * u.back();
  }
  const double rms = std::sqrt(squares / double(rows * cols));
  for (size_t i = 0; i < u.size(); ++i) {
    const double w = double{c.w[i]};
    const double update = u[i] / std::max(1.0, rms / double{kClipRms});
    out.master.push_back(w - double{s.lr} * (update + double{kDecay} * w));
  }
  return out;
}

// Output of the kernels for a parameter that is not a matrix: new second moment and parameter.
struct VectorResult {
  std::vector<float> v, master;
};

template <typename Grad>
VectorResult run_vector(const Exec& base, const std::vector<float>& w, const std::vector<Grad>& g,
                        const std::vector<float>& old_v, const StepState& state = step_state()) {
  const test::DeviceStep step(base, state);
  const DeviceArray<float> master(base, w), v(base, old_v), sum(base, std::vector<float>(1));
  const DeviceArray<Grad> grad(base, g);
  const MatrixRange part{.rows = 1, .cols = int64_t(w.size())};
  kernels::adafactor_squares(
      step.exec(),
      {.grad = grad.view(), .v = v.view(), .sum = sum.view({}), .part = part, .eps = kEps});
  kernels::adafactor(step.exec(), {.master = master.view(),
                                   .grad = grad.view(),
                                   .v = v.view(),
                                   .square_sum = sum.view({}),
                                   .part = part,
                                   .clip_rms = kClipRms,
                                   .weight_decay = kDecay});
  CHECK((master.margins_intact() && v.margins_intact() && sum.margins_intact()));
  return {v.download(), master.download()};
}

// Checks that a result is within its rounding errors. A sum of n f32 terms, added in lanes and
// blocks, rounds each term at most n / 16 + 20 times. The update has about ten roundings of numbers
// of order lr * u and one of order w.
void check_close(const Result& got, const Reference& want, Size size) {
  const double sums = double(std::max(size.rows, size.cols)) / 16 + 20;
  const double ulp = test::ulp<float>();
  CHECK(test::max_error(got.row, want.row) <= sums * ulp * test::max_abs(want.row));
  CHECK(test::max_error(got.col, want.col) <= sums * ulp * test::max_abs(want.col));
  CHECK(test::max_error(got.master, want.master) <= 2 * ulp * test::max_abs(want.master));
  for (size_t i = 0; i < got.param.size(); ++i) {
    REQUIRE(got.param[i].bits == bf16(got.master[i]).bits);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("an adafactor step agrees with f64, however the matrix is cut",
                   "[kernels][optim]", float, bf16) {
  const Size size =
      GENERATE(Size{2, 2}, Size{7, 3}, Size{40, 129}, Size{40, 132}, Size{300, 17}, Size{130, 64});
  const auto c = make_case<TestType>(size);
  const Reference want = reference(c);
  for (const Exec& exec : test::devices_with({&kernels::adafactor, &kernels::adafactor_means})) {
    CAPTURE(size.rows, size.cols);
    check_close(run(exec, c), want, size);
    const int64_t n = size.rows * size.cols;
    check_close(run(exec, c, {1, n / 3, n / 2, n / 2}), want, size);
    check_close(run(exec, c, {n / 8 * 4}), want, size);
  }
}

TEMPLATE_TEST_CASE("an adafactor step of a vector agrees with f64", "[kernels][optim]", float,
                   bf16) {
  const int64_t n = GENERATE(1, 3, 64, 1001, 9000);
  const auto w = test::randn<float>(n, 1);
  const auto g = test::randn<TestType>(n, 2);
  auto v = test::randn<float>(n, 3);
  for (float& x : v) x = x * x + 0.01f;
  const StepState s = step_state();
  const double gamma = double{s.bias_correction2};
  std::vector<double> want_v, u, want;
  double squares = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double grad = double{s.clip_factor} * test::to_f64(g[i]);
    want_v.push_back((1 - gamma) * double{v[i]} + gamma * (grad * grad + double{kEps}));
    u.push_back(grad / std::sqrt(want_v.back()));
    squares += u.back() * u.back();
  }
  const double over = 1 / std::max(1.0, std::sqrt(squares / double(n)) / double{kClipRms});
  for (size_t i = 0; i < w.size(); ++i) {
    want.push_back(double{w[i]} - double{s.lr} * (u[i] * over + double{kDecay} * double{w[i]}));
  }
  for (const Exec& exec : test::devices_with({&kernels::adafactor, &kernels::adafactor_squares})) {
    CAPTURE(n);
    const VectorResult got = run_vector(exec, w, g, v);
    // v has four roundings: of a product, a square and two sums. The bound for the update is the
    // same as for matrices.
    CHECK(test::max_error(got.v, want_v) <= 4 * test::ulp<float>() * test::max_abs(want_v));
    CHECK(test::max_error(got.master, want) <= 2 * test::ulp<float>() * test::max_abs(want));
  }
}

TEST_CASE("an adafactor step has the same bits in any order of a GPU's threads",
          "[kernels][optim]") {
  const auto c = make_case<float>({300, 132});
  std::vector<std::vector<float>> masters;
  for (const Exec& exec : test::devices_with({&kernels::adafactor, &kernels::adafactor_means})) {
    if (exec.device.type == DeviceType::kCpu) continue;
    const std::vector<float> master = run(exec, c).master;
    CHECK(test::same_bits(run(exec, c).master, master));
    if (exec.device.type == DeviceType::kEmu) masters.push_back(master);
  }
  for (const auto& master : masters) CHECK(test::same_bits(master, masters.front()));
}

TEST_CASE("an adafactor step writes nothing when gradients are not finite", "[kernels][optim]") {
  const auto c = make_case<float>({20, 12});
  StepState state = step_state();
  state.non_finite = 1;
  for (const Exec& exec : test::devices_with({&kernels::adafactor, &kernels::adafactor_means})) {
    const Result got = run(exec, c, {}, state);
    CHECK((got.row == c.row && got.col == c.col && got.master == c.w));
    CHECK(got.param[0].bits == 0xffff);  // param keeps its initial value
    const VectorResult vector = run_vector(exec, c.w, c.g, c.w, state);
    CHECK((vector.v == c.w && vector.master == c.w));
  }
}

TEST_CASE("an adafactor step has the same bits for any number of threads", "[kernels][optim]") {
  const auto c = make_case<float>({300, 70});
  CHECK(test::same_bits_for_any_threads(test::devices()[0],
                                        [&](const Exec& exec) { return run(exec, c).master; }));
}

TEST_CASE("adafactor names the argument that is wrong", "[kernels][optim]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 12), three(exec, 3), four(exec, 4);
  const auto means = [&](const View& row, int64_t first) {
    kernels::adafactor_means(exec, {.grad = a.view(),
                                    .row_mean = row,
                                    .col_mean = four.view(),
                                    .part = {.rows = 3, .cols = 4, .first = first}});
  };
  CHECK(test::message_of<ShapeError>([&] { means(four.view(), 0); }) ==
        "adafactor_means: row_mean is fp32[4], expected shape [3]");
  CHECK(test::message_of<ShapeError>([&] { means(three.view(), 1); }) ==
        "adafactor_means: grad covers the elements 1 to 13, expected an end of at most 12");
}

}  // namespace shale
