#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "shale/kernels/loss.h"
#include "shale/test/support/kernels.h"

// What cross-entropy is held to, of whole rows and of parts of a vocabulary.
namespace shale::test::cross_entropy {

inline constexpr float kScale = 0.125f;  // grad_scale of the tests' runs

template <typename T>
struct Case {
  std::vector<T> logits;  // [rows, cols]
  std::vector<int32_t> targets;
  int64_t cols = 0, vocab = 0;
  int64_t rows() const { return int64_t(targets.size()); }
};

template <typename T>
Case<T> make_case(int64_t rows, int64_t cols, int64_t vocab, double std = 3) {
  return {.logits = test::randn<T>(rows * cols, 1, 0, std),
          .targets = test::rand_int<int32_t>(rows, 2, 0, vocab - 1),
          .cols = cols,
          .vocab = vocab};
}

struct Result {
  std::vector<double> losses, grads;
};

// Losses of rows [rows] and kScale times their gradients [rows, cols] in f64, each intermediate
// rounded by round(), gradients by round_out(); rows of kIgnoreTarget have zeros.
template <typename T, typename Round, typename RoundOut>
Result reference(const Case<T>& c, Round round, RoundOut round_out) {
  Result out;
  for (size_t r = 0; r < c.targets.size(); ++r) {
    const T* row = c.logits.data() + int64_t(r) * c.cols;
    const auto target = c.targets[r];
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < c.vocab; ++j) max = std::max(max, test::to_f64(row[j]));
    for (int64_t j = 0; j < c.vocab; ++j) sum += round(std::exp(round(test::to_f64(row[j]) - max)));
    sum = round(sum);
    const bool ignored = target == kernels::kIgnoreTarget;
    out.losses.push_back(
        ignored ? 0 : round(round(std::log(sum)) - round(test::to_f64(row[target]) - max)));
    for (int64_t j = 0; j < c.cols; ++j) {
      const double exp = round(std::exp(round(test::to_f64(row[j]) - max)));
      const double p = round(exp * round(1 / sum)) - (j == target ? 1 : 0);
      out.grads.push_back(ignored || j >= c.vocab ? 0 : round_out(p * double{kScale}));
    }
  }
  return out;
}

template <typename T>
struct Run {
  std::vector<T> logits;
  std::vector<float> losses;
};

}  // namespace shale::test::cross_entropy
