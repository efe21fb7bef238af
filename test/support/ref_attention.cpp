// The bounds are first-order errors, which are propagated next to the values. u = 2^-24 is the unit
// roundoff of f32. A sum of n products, in any order, adds at most chain(n) times the sum of their
// magnitudes. chain(n) is the smaller of two numbers of roundings: n, the worst case, and 6
// sqrt(n), which n independent roundings exceed with probability 3e-8 (Higham and Mary, SIAM J.
// Sci. Comput. 41(5), 2019, theorem 2.4). A few more cover factors that are applied before or
// after.

#include "shale/test/support/ref_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shale/kernels/attention.h"

namespace shale::test {
namespace {

constexpr double kUnit = 0x1p-24;
// Absolute error of products that f32 flushes to zero; far below any result that matters.
constexpr double kFloor = 1e-30;
// Minimum number of keys between two rescalings in the online softmax of kernels.
constexpr double kSmallestTile = 16;

double exact(double x) {
  return x;
}

double chain(int64_t n) {
  const auto terms = static_cast<double>(n);
  return kUnit * (std::min(terms, 6 * std::sqrt(terms)) + 4);
}

// Intermediate results for one query of one head, which the passes below share.
struct Row {
  std::vector<double> score;        // scaled scores
  std::vector<double> score_error;  // absolute errors of the scores
  std::vector<double> prob;
  std::vector<double> slope;  // derivative of the softcap; 1 without a softcap
  double lse = -std::numeric_limits<double>::infinity(), lse_error = 0;
  double softmax_error = 0;   // maximum relative error of the probabilities
  // Numbers of the keys that the query sees, one per element of the other vectors.
  std::vector<int64_t> keys;
  int64_t visible() const { return std::ssize(keys); }
};

struct Dot {
  double value = 0, magnitude = 0;
};

Dot dot(const double* a, const double* b, int64_t n) {
  Dot sum;
  for (int64_t i = 0; i < n; ++i) {
    sum.value += a[i] * b[i];
    sum.magnitude += std::abs(a[i] * b[i]);
  }
  return sum;
}

class Reference {
 public:
  Reference(const AttentionShape& shape, const StorageRounding& storage, const double* q,
            const double* k, const double* v, const double* dout, Rounding round = exact)
      : s_(shape), storage_(storage), round_(round), q_(q), k_(k), v_(v), dout_(dout) {}

  RefAttention run() {
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t h = 0; h < s_.heads; ++h) {
        for (int64_t i = 0; i < s_.queries; ++i) query(b, h, i);
      }
    }
    const int64_t terms = s_.queries * (s_.kv_heads ? s_.heads / s_.kv_heads : 0);
    finish(r_.dk, dk_magnitude_, terms);
    finish(r_.dv, dv_magnitude_, terms);
    for (Bounded* result : {&r_.dq, &r_.dk, &r_.dv}) {
      for (double& value : result->value) value = round_(value);
    }
    return std::move(r_);
  }

 private:
  int64_t q_at(int64_t b, int64_t i, int64_t h) const {
    return ((b * s_.queries + i) * s_.heads + h) * s_.head_size;
  }
  int64_t kv_at(int64_t b, int64_t j, int64_t h) const {
    const int64_t kv_head = h / (s_.heads / s_.kv_heads);
    return ((b * s_.keys + j) * s_.kv_heads + kv_head) * s_.head_size;
  }

  Row softmax(int64_t b, int64_t h, int64_t i) const {
    Row row;
    for (int64_t j = s_.first_key(b, i); j < s_.visible_keys(i); ++j) {
      if (s_.sees(h, i, j)) row.keys.push_back(j);
    }
    double maximum = -std::numeric_limits<double>::infinity(), largest = 0, largest_error = 0;
    for (const int64_t j : row.keys) {
      const Dot d = dot(q_ + q_at(b, i, h), k_ + kv_at(b, j, h), s_.head_size);
      row.score.push_back(s_.scale * d.value);
      row.score_error.push_back(chain(s_.head_size) * std::abs(s_.scale) * d.magnitude);
      row.slope.push_back(1);
      if (s_.softcap > 0) cap(row);
      maximum = std::max(maximum, row.score.back());
      largest = std::max(largest, std::abs(row.score.back()));
      largest_error = std::max(largest_error, row.score_error.back());
    }
    double sum = 0;
    for (const double score : row.score) sum += std::exp(score - maximum);
    if (row.visible() > 0) row.lse = maximum + std::log(sum);
    for (const double score : row.score) row.prob.push_back(std::exp(score - row.lse));
    // The error of the softmax has four sources: the scores' own error, in numerator and
    // denominator; rounded differences of scores; a rescaling per tile (an exponential of 2 ulp and
    // a product); and the sum.
    const double tiles = std::ceil(static_cast<double>(row.visible()) / kSmallestTile);
    row.softmax_error =
        2 * largest_error + kUnit * (6 * largest + 6 * tiles + 8) + chain(row.visible());
    row.lse_error = row.softmax_error + kUnit * 4 * (largest + std::abs(row.lse) + 1);
    return row;
  }

  // Applies the softcap to the last score.
  void cap(Row& row) const {
    const double tanh = std::tanh(row.score.back() / s_.softcap), slope = 1 - tanh * tanh;
    row.score.back() = s_.softcap * tanh;
    // Kernels compute tanh from an exponential (2 ulp), a reciprocal, and sums.
    row.score_error.back() = slope * row.score_error.back() + 12 * kUnit * s_.softcap;
    row.slope.back() = slope;
  }

  void query(int64_t b, int64_t h, int64_t i) {
    const Row row = softmax(b, h, i);
    const auto at = static_cast<size_t>(q_at(b, i, h));
    const auto lse_at = static_cast<size_t>((b * s_.heads + h) * s_.queries + i);
    r_.lse.value[lse_at] = row.lse;
    r_.lse.bound[lse_at] = row.visible() > 0 ? row.lse_error : 0;

    std::vector<double> magnitude(static_cast<size_t>(s_.head_size));
    for (size_t seen = 0; seen < row.keys.size(); ++seen) {
      const int64_t j = row.keys[seen];
      const double prob = round_(row.prob[seen]);
      const double* v = v_ + kv_at(b, j, h);
      for (size_t c = 0; c < magnitude.size(); ++c) {
        r_.out.value[at + c] += prob * v[c];
        magnitude[c] += prob * std::abs(v[c]);
      }
    }
    double delta = 0, delta_error = 0;
    for (size_t c = 0; c < magnitude.size(); ++c) {
      r_.out.value[at + c] = round_(r_.out.value[at + c]);
      const double out = r_.out.value[at + c], grad = dout_[at + c];
      r_.out.bound[at + c] =
          (row.softmax_error + chain(row.visible()) + as_operand()) * magnitude[c] + stored(out);
      delta += grad * out;
      delta_error += std::abs(grad) * (chain(s_.head_size) * std::abs(out) + r_.out.bound[at + c]);
    }
    backward(b, h, i, row, delta, delta_error);
  }

  void backward(int64_t b, int64_t h, int64_t i, const Row& row, double delta, double delta_error) {
    const int64_t D = s_.head_size;
    const auto at = static_cast<size_t>(q_at(b, i, h));
    std::vector<double> dq_magnitude(static_cast<size_t>(D));
    for (size_t seen = 0; seen < row.keys.size(); ++seen) {
      const auto key_at = static_cast<size_t>(kv_at(b, row.keys[seen], h));
      const double prob = row.prob[seen], score = row.score[seen];
      // Backward computes the probability again, from the stored lse.
      const double prob_error =
          prob * (row.score_error[seen] + row.lse_error +
                  kUnit * (2 * std::abs(row.lse) + std::abs(score - row.lse) + 6));
      const Dot dp = dot(dout_ + at, v_ + key_at, D);
      const double slope = row.slope[seen], ds = prob * (dp.value - delta) * slope;
      const double ds_error = slope * prob_error * std::abs(dp.value - delta) +
                              slope * prob * (chain(D) * dp.magnitude + delta_error) +
                              prob * slope_error(row, seen, dp.value, delta) +
                              (4 * kUnit + as_operand()) * std::abs(ds) + storage_.absolute;
      for (size_t c = 0; c < size_t(D); ++c) {
        const double q = q_[at + c], k = k_[key_at + c], grad = dout_[at + c];
        add(r_.dq, dq_magnitude, at + c, c, s_.scale * k, round_(ds), ds_error);
        add(r_.dk, dk_magnitude_, key_at + c, key_at + c, s_.scale * q, round_(ds), ds_error);
        add(r_.dv, dv_magnitude_, key_at + c, key_at + c, grad, round_(prob),
            prob_error + as_operand() * prob + storage_.absolute);
      }
    }
    for (size_t c = 0; c < size_t(D); ++c) {
      r_.dq.bound[at + c] += chain(row.visible()) * dq_magnitude[c] + stored(r_.dq.value[at + c]);
    }
  }

  // Returns the additional error of (dp - delta) * slope with a softcap. Kernels may store that
  // value plus delta, and may compute the slope from the logarithm of a probability.
  double slope_error(const Row& row, size_t seen, double dp, double delta) const {
    if (s_.softcap == 0) return 0;
    const double tanh_error = row.score_error[seen] / s_.softcap + 32 * kUnit;
    return 2 * tanh_error * std::abs(dp - delta) + 2 * kUnit * (std::abs(dp) + std::abs(delta));
  }

  static void add(Bounded& sum, std::vector<double>& magnitude, size_t at, size_t magnitude_at,
                  double factor, double term, double term_error) {
    sum.value[at] += factor * term;
    sum.bound[at] += std::abs(factor) * term_error;
    magnitude[magnitude_at] += std::abs(factor * term);
  }

  void finish(Bounded& sum, const std::vector<double>& magnitude, int64_t terms) const {
    for (size_t c = 0; c < sum.value.size(); ++c) {
      sum.bound[c] += chain(terms) * magnitude[c] + stored(sum.value[c]);
    }
  }

  double stored(double value) const {
    return storage_.relative * std::abs(value) + storage_.absolute + kFloor;
  }

  // Relative error from rounding the left operand of a matmul.
  double as_operand() const { return storage_.operands ? storage_.relative : 0; }

  AttentionShape s_;
  StorageRounding storage_;
  Rounding round_;
  const double *q_, *k_, *v_, *dout_;
  std::vector<double> dk_magnitude_ = std::vector<double>(size_t(s_.kv_count()));
  std::vector<double> dv_magnitude_ = std::vector<double>(size_t(s_.kv_count()));
  RefAttention r_{Bounded(s_.q_count()), Bounded(s_.lse_count()), Bounded(s_.q_count()),
                  Bounded(s_.kv_count()), Bounded(s_.kv_count())};
};

}  // namespace

int64_t AttentionShape::visible_keys(int64_t i) const {
  return causal ? std::clamp<int64_t>(i + keys - queries + 1, 0, keys) : keys;
}

bool AttentionShape::sees(int64_t head, int64_t query, int64_t key) const {
  constexpr int64_t kBlock = kernels::kAttentionBlock;
  return !sees_block || sees_block(head, query / kBlock, key / kBlock);
}

int64_t AttentionShape::first_key(int64_t b, int64_t i) const {
  int64_t first = window > 0 ? i + keys - queries + 1 - window : 0;
  if (!first_keys.empty()) first = std::max<int64_t>(first, first_keys[size_t(b * queries + i)]);
  return std::clamp<int64_t>(first, 0, keys);
}

double error_over_bound(const std::vector<double>& got, const Bounded& want) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.size() != want.value.size()) return kInfinity;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want.value[i]) continue;  // also skips equal infinities
    const double ratio = std::abs(got[i] - want.value[i]) / want.bound[i];
    worst = std::isfinite(ratio) ? std::max(worst, ratio) : kInfinity;
  }
  return worst;
}

RefAttention ref_attention(const AttentionShape& shape, const std::vector<double>& q,
                           const std::vector<double>& k, const std::vector<double>& v,
                           const std::vector<double>& dout, const StorageRounding& storage) {
  return Reference(shape, storage, q.data(), k.data(), v.data(), dout.data()).run();
}

RefAttention rounded_attention(const AttentionShape& shape, const std::vector<double>& q,
                               const std::vector<double>& k, const std::vector<double>& v,
                               const std::vector<double>& dout, Rounding round) {
  return Reference(shape, {}, q.data(), k.data(), v.data(), dout.data(), round).run();
}

}  // namespace shale::test
