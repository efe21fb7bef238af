// Compares every op with an f64 reference: values, and gradients with finite differences.
#include <cmath>
#include <numbers>

#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/ffn.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using In = std::vector<Tensor>;
using Vec = std::vector<double>;
using Values = std::vector<Vec>;

// Relative error of f32 results. Sums have up to 64 terms of order 1, with 64 roundings of 2^-24.
// The margin covers functions between the sums.
constexpr double kTolerance = 2e-5;

// In 16 bits every tensor between two kernels is rounded, by at most half an ulp of its largest
// value. A result or gradient has up to four such roundings, which sums grow by a factor of two.
constexpr double kRoundings = 4;

void expect_agrees(const OpCase& op_case) {
  expect_op(op_case, kTolerance, kRoundings);
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) {
  return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
}

// Reference of linear: [rows, in] times the transpose of [out, in], plus a bias unless it is empty.
Vec matmul(const Vec& x, const Vec& w, const Vec& bias, int64_t rows, int64_t in, int64_t out) {
  Vec y(size_t(rows * out));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[size_t(o)];
      for (int64_t i = 0; i < in; ++i) sum += x[size_t(r * in + i)] * w[size_t(o * in + i)];
      y[size_t(r * out + o)] = sum;
    }
  }
  return y;
}

Vec plus(Vec a, const Vec& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Vec norm(const Vec& x, const Vec& gain, const Vec& bias, int64_t cols) {
  Vec y(x.size());
  for (size_t row = 0; row < x.size(); row += size_t(cols)) {
    double mean = 0, var = 0;
    for (int64_t c = 0; c < cols; ++c) mean += x[row + size_t(c)] / double(cols);
    for (int64_t c = 0; c < cols; ++c) var += std::pow(x[row + size_t(c)] - mean, 2) / double(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const double normed = (x[row + size_t(c)] - mean) / std::sqrt(var + 1e-5);
      y[row + size_t(c)] = normed * gain[size_t(c)] + (bias.empty() ? 0 : bias[size_t(c)]);
    }
  }
  return y;
}

struct Heads {
  int64_t B, Tq, Tk, H, Hkv, D;
};

// Reference of attention, with a plain softmax: q [B,Tq,H,D], k and v [B,Tk,Hkv,D].
Vec attend(const Vec& q, const Vec& k, const Vec& v, const Heads& n, bool causal) {
  Vec out(size_t(n.B * n.Tq * n.H * n.D));
  const auto at = [&](int64_t b, int64_t t, int64_t h, int64_t T, int64_t H) {
    return size_t(((b * T + t) * H + h) * n.D);
  };
  for (int64_t b = 0; b < n.B; ++b) {
    for (int64_t h = 0; h < n.H; ++h) {
      const int64_t hk = h / (n.H / n.Hkv);
      for (int64_t i = 0; i < n.Tq; ++i) {
        const int64_t last = causal ? i + n.Tk - n.Tq : n.Tk - 1;
        Vec p;
        double total = 0;
        for (int64_t j = 0; j <= last; ++j) {
          double score = 0;
          for (int64_t d = 0; d < n.D; ++d) {
            score +=
                q[at(b, i, h, n.Tq, n.H) + size_t(d)] * k[at(b, j, hk, n.Tk, n.Hkv) + size_t(d)];
          }
          p.push_back(std::exp(score / std::sqrt(double(n.D))));
          total += p.back();
        }
        for (size_t j = 0; j < p.size(); ++j) {
          for (int64_t d = 0; d < n.D; ++d) {
            out[at(b, i, h, n.Tq, n.H) + size_t(d)] +=
                p[j] / total * v[at(b, int64_t(j), hk, n.Tk, n.Hkv) + size_t(d)];
          }
        }
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("linear agrees with f64, with bias and residual or without") {
  expect_agrees(
      {.name = "linear",
       .inputs = {{3, 5, 7}, {4, 7}, {4}, {3, 5, 4}},
       .output = {3, 5, 4},
       .op = [](const In& x) { return linear(x[0], x[1], x[2], x[3]); },
       .reference =
           [](const Values& x) { return plus(matmul(x[0], x[1], x[2], 15, 7, 4), x[3]); }});
  expect_agrees({.name = "linear without bias",
                 .inputs = {{1, 33}, {2, 33}},
                 .output = {1, 2},
                 .op = [](const In& x) { return linear(x[0], x[1]); },
                 .reference = [](const Values& x) { return matmul(x[0], x[1], {}, 1, 33, 2); }});
}

TEST_CASE("ops over no rows give empty results, and weight gradients of zero") {
  const auto expect_empty = [](std::string name, std::vector<Shape> inputs, Shape output,
                               std::function<Tensor(const In&)> op) {
    expect_agrees({.name = std::move(name),
                   .inputs = std::move(inputs),
                   .output = output,
                   .op = std::move(op),
                   .reference = [output](const Values&) { return Vec(size_t(output.numel())); }});
  };
  expect_empty("linear", {{0, 7}, {4, 7}, {4}, {0, 4}}, {0, 4},
               [](const In& x) { return linear(x[0], x[1], x[2], x[3]); });
  expect_empty("layer_norm", {{0, 6}, {6}, {6}}, {0, 6},
               [](const In& x) { return layer_norm(x[0], x[1], x[2]); });
  expect_empty("stream_layer_norm", {{0, 6}, {0, 6}, {6}, {6}}, {0, 6}, [](const In& x) {
    const auto [y, stream] = stream_layer_norm(x[0], x[1], x[2], x[3]);
    return add(y, stream);
  });
  expect_empty("ffn", {{0, 5}, {7, 5}, {7}, {4, 7}, {4}}, {0, 4},
               [](const In& x) { return ffn(x[0], x[1], x[2], x[3], x[4]); });
  expect_empty("packed_attention", {{0, 3, 12}}, {0, 3, 4},
               [](const In& x) { return packed_attention(x[0], 2); });
  expect_empty("elementwise", {{0, 3}, {0, 3}}, {0, 3},
               [](const In& x) { return gelu(mul(add(x[0], x[1]), scale(x[1], 2))); });
  expect_empty("column_sum", {{0, 3}}, {3}, [](const In& x) { return column_sum(x[0]); });
  expect_empty("sum", {{0, 3}}, {}, [](const In& x) { return sum(x[0]); });
}

TEST_CASE("layer_norm agrees with f64") {
  for (const int64_t cols : {2, 5, 16, 37}) {
    expect_agrees({.name = cat("layer_norm ", cols),
                   .inputs = {{3, cols}, {cols}, {cols}},
                   .output = {3, cols},
                   .op = [](const In& x) { return layer_norm(x[0], x[1], x[2]); },
                   .reference = [cols](const Values& x) { return norm(x[0], x[1], x[2], cols); }});
  }
}

TEST_CASE("stream_layer_norm sends both gradients through its sum") {
  expect_agrees({.name = "with a branch",
                 .inputs = {{4, 6}, {4, 6}, {6}, {6}},
                 .output = {4, 6},
                 .op =
                     [](const In& x) {
                       const auto [y, stream] = stream_layer_norm(x[0], x[1], x[2], x[3]);
                       return add(y, scale(stream, 0.5f));
                     },
                 .reference =
                     [](const Values& x) {
                       const Vec sum = plus(x[0], x[1]);
                       Vec half = sum;
                       for (double& value : half) value *= 0.5;
                       return plus(norm(sum, x[2], x[3], 6), half);
                     }});
  expect_agrees({.name = "without a branch",
                 .inputs = {{2, 9}, {9}, {9}},
                 .output = {2, 9},
                 .op =
                     [](const In& x) {
                       const auto [y, stream] = stream_layer_norm(x[0], {}, x[1], x[2]);
                       return mul(y, stream);
                     },
                 .reference =
                     [](const Values& x) {
                       Vec y = norm(x[0], x[1], x[2], 9);
                       for (size_t i = 0; i < y.size(); ++i) y[i] *= x[0][i];
                       return y;
                     }});
}

TEST_CASE("ffn agrees with f64 for both forms of GELU, with a residual or without") {
  for (const Gelu kind : {Gelu::kTanh, Gelu::kErf}) {
    for (const bool residual : {false, true}) {
      std::vector<Shape> inputs = {{3, 5}, {7, 5}, {7}, {4, 7}, {4}};
      if (residual) inputs.push_back({3, 4});
      expect_agrees({.name = cat("ffn residual ", residual),
                     .inputs = inputs,
                     .output = {3, 4},
                     .op =
                         [=](const In& x) {
                           return ffn(x[0], x[1], x[2], x[3], x[4], residual ? x[5] : Tensor(),
                                      kind);
                         },
                     .reference =
                         [=](const Values& x) {
                           Vec hidden = matmul(x[0], x[1], x[2], 3, 5, 7);
                           for (double& h : hidden) {
                             h = kind == Gelu::kTanh ? gelu_tanh(h) : gelu_erf(h);
                           }
                           const Vec y = matmul(hidden, x[3], x[4], 3, 7, 4);
                           return residual ? plus(y, x[5]) : y;
                         }});
    }
  }
}

TEST_CASE("attention agrees with f64: causal, full, grouped-query, ragged") {
  for (const bool causal : {true, false}) {
    for (const Heads n : {Heads{2, 5, 5, 2, 2, 4}, Heads{1, 3, 7, 4, 2, 8}, Heads{1, 9, 9, 3, 1, 5},
                          Heads{1, 1, 1, 1, 1, 1}}) {
      expect_agrees(
          {.name = cat("attention T ", n.Tq, " H ", n.H, " causal ", causal),
           .inputs = {{n.B, n.Tq, n.H, n.D}, {n.B, n.Tk, n.Hkv, n.D}, {n.B, n.Tk, n.Hkv, n.D}},
           .output = {n.B, n.Tq, n.H, n.D},
           .op = [=](const In& x) { return attention(x[0], x[1], x[2], {.causal = causal}); },
           .reference = [=](const Values& x) { return attend(x[0], x[1], x[2], n, causal); }});
    }
  }
}

TEST_CASE("packed_attention reads and writes one tensor") {
  const Heads n{2, 6, 6, 3, 3, 4};
  expect_agrees({.name = "packed_attention",
                 .inputs = {{n.B, n.Tq, 3 * n.H * n.D}},
                 .output = {n.B, n.Tq, n.H * n.D},
                 .op = [](const In& x) { return packed_attention(x[0], 3); },
                 .reference =
                     [=](const Values& x) {
                       const size_t width = size_t(n.H * n.D);
                       std::array<Vec, 3> parts;
                       for (size_t row = 0; row < x[0].size(); row += width) {
                         Vec& part = parts[row / width % 3];
                         part.insert(part.end(), x[0].begin() + int64_t(row),
                                     x[0].begin() + int64_t(row + width));
                       }
                       return attend(parts[0], parts[1], parts[2], n, true);
                     }});
}

TEST_CASE("elementwise ops agree with f64") {
  const auto unary = [](std::string name, Tensor (*op)(const Tensor&),
                        double (*reference)(double)) {
    expect_agrees({.name = std::move(name),
                   .inputs = {{3, 11}},
                   .output = {3, 11},
                   .op = [=](const In& x) { return op(x[0]); },
                   .reference =
                       [=](const Values& x) {
                         Vec y = x[0];
                         for (double& value : y) value = reference(value);
                         return y;
                       }});
  };
  unary(
      "scale", [](const Tensor& x) { return scale(x, -1.5f); }, [](double x) { return -1.5 * x; });
  unary(
      "gelu tanh", [](const Tensor& x) { return gelu(x); }, gelu_tanh);
  unary(
      "gelu erf", [](const Tensor& x) { return gelu(x, Gelu::kErf); }, gelu_erf);
  unary(
      "in place",
      [](const Tensor& x) {
        Tensor y = scale(x, 2);
        scale_(y, 3);
        add_(y, x);
        return y;
      },
      [](double x) { return 7 * x; });
  expect_agrees({.name = "add and mul",
                 .inputs = {{13}, {13}},
                 .output = {13},
                 .op = [](const In& x) { return add(mul(x[0], x[1]), x[0]); },
                 .reference =
                     [](const Values& x) {
                       Vec y = x[0];
                       for (size_t i = 0; i < y.size(); ++i) y[i] += x[0][i] * x[1][i];
                       return y;
                     }});
}

TEST_CASE("reductions agree with f64") {
  expect_agrees({.name = "sum",
                 .inputs = {{5, 7}},
                 .output = {},
                 .op = [](const In& x) { return sum(x[0]); },
                 .reference =
                     [](const Values& x) {
                       double total = 0;
                       for (const double value : x[0]) total += value;
                       return Vec{total};
                     }});
  expect_agrees({.name = "mean of a column sum",
                 .inputs = {{5, 7}},
                 .output = {},
                 .op = [](const In& x) { return mean(column_sum(x[0])); },
                 .reference =
                     [](const Values& x) {
                       double total = 0;
                       for (const double value : x[0]) total += value;
                       return Vec{total / 7};
                     }});
}

TEST_CASE("shape ops move values and gradients to their places") {
  expect_agrees({.name = "slice of a transpose of a reshape",
                 .inputs = {{4, 6}},
                 .output = {3, 2, 2},
                 .op =
                     [](const In& x) {
                       // The input [4,6] is reshaped to [2,4,3], transposed to [3,4,2], and sliced
                       // to its middle [3,2,2].
                       const Tensor y = transpose(reshape(x[0], {2, -1, 3}), 0, 2);
                       return contiguous(slice(y, 1, 1, 3));
                     },
                 .reference =
                     [](const Values& x) {
                       Vec y;
                       for (size_t c = 0; c < 3; ++c) {
                         for (size_t b = 1; b < 3; ++b) {
                           for (size_t a = 0; a < 2; ++a) y.push_back(x[0][a * 12 + b * 3 + c]);
                         }
                       }
                       return y;
                     }});
}

}  // namespace shale::test
