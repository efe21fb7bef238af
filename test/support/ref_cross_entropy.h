#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "shale/kernels/loss.h"
#include "shale/test/support/kernels.h"

// References for cross-entropy, over whole rows and over parts of a vocabulary.
namespace shale::test::cross_entropy {

inline constexpr float kScale = 0.125f;  // grad_scale in all tests

template <typename T>
struct Case {
  std::vector<T> logits;  // [rows, cols]
  std::vector<int32_t> targets;
  int64_t cols = 0, vocab = 0;
  float softcap = 0;
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

// Computes in f64 the losses [rows], and the gradients of logits [rows, cols] times kScale. round()
// is applied to intermediate results, round_out() to gradients. Rows with kIgnoreTarget are zeros.
template <typename T, typename Round, typename RoundOut>
Result reference(const Case<T>& c, Round round, RoundOut round_out) {
  Result out;
  for (size_t r = 0; r < c.targets.size(); ++r) {
    const T* row = c.logits.data() + int64_t(r) * c.cols;
    const auto target = c.targets[r];
    const double softcap = double{c.softcap};
    const auto tanh = [&](int64_t j) {
      return round(std::tanh(round(test::to_f64(row[j]) / softcap)));
    };
    const auto logit = [&](int64_t j) {
      return softcap > 0 ? round(softcap * tanh(j)) : test::to_f64(row[j]);
    };
    const auto slope = [&](int64_t j) {
      return softcap > 0 ? round(1 - round(tanh(j) * tanh(j))) : 1;
    };
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < c.vocab; ++j) max = std::max(max, logit(j));
    for (int64_t j = 0; j < c.vocab; ++j) sum += round(std::exp(round(logit(j) - max)));
    sum = round(sum);
    const bool ignored = target == kernels::kIgnoreTarget;
    out.losses.push_back(ignored ? 0 : round(round(std::log(sum)) - round(logit(target) - max)));
    for (int64_t j = 0; j < c.cols; ++j) {
      if (ignored || j >= c.vocab) {
        out.grads.push_back(0);
        continue;
      }
      const double exp = round(std::exp(round(logit(j) - max)));
      const double p = round(exp * round(1 / sum)) - (j == target ? 1 : 0);
      out.grads.push_back(round_out(p * double{kScale} * slope(j)));
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
