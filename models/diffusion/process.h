#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shale::models {

// How pictures become noise, and what a model learns of it.
enum class DiffusionKind {
  kDdpm,  // x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise; the model says the noise (arXiv:2006.11239)
  kFlow,  // x_t = (1 - t) x_0 + t noise; the model says noise - x_0 (arXiv:2209.03003)
};

// How the times of training samples are drawn.
enum class TimeDraws {
  kUniform,
  kLogitNormal,  // sigmoid of a normal number (arXiv:2403.03206, section 3.1); of kFlow alone
};

// The variances of DDPM: T steps, beta from 1e-4 to 0.02, all linear; in f64.
class NoiseSchedule {
 public:
  static constexpr int64_t kSteps = 1000;

  NoiseSchedule();
  // So many of the steps, evenly spread, the first and the last among them, with variances between
  // them (arXiv:2102.09672, section 4). Throws ConfigError unless 1 <= steps <= kSteps.
  explicit NoiseSchedule(int64_t steps);

  // A step i: which it is of kSteps, and its numbers; a = product of (1 - beta) up to i.
  struct Step {
    int64_t time = 0;
    double a = 0, before = 0;  // a of this step, and of the one before: 1 for the first
    double beta = 0;
    // Of the posterior q(x_{i-1} | x_i, x_0): beta (1 - before) / (1 - a), for the first step that
    // of the second, as it has none.
    double log_posterior = 0;
    // Its mean is of_first x_0 + of_now x_i.
    double of_first = 0, of_now = 0;
  };
  int64_t size() const { return static_cast<int64_t>(steps_.size()); }
  const Step& at(int64_t i) const { return steps_.at(static_cast<size_t>(i)); }

 private:
  explicit NoiseSchedule(const std::vector<int64_t>& times);

  std::vector<Step> steps_;
};

// What the loss of a sample is made of.
enum LossCoefficient : int {
  kSignal,        // x_t = kSignal x_0 + kSpread noise
  kSpread,        //
  kWeight,        // of the squared error of an element
  kBoundWeight,   // of an element's share of the variational bound
  kLogBeta,       // the larger variance that a learned one lies below
  kLogPosterior,  // the smaller one, which is the posterior's
  kMeanFactor,    // by which an error in the noise is one in the posterior's mean
  kIsFirst,       // 1: the sample is of time 0, which ends in x_0
  kLossCoefficients,
};
using LossCoefficients = std::array<float, kLossCoefficients>;

// Of a sample of so many elements, which counts `weight`. kDdpm: time is a whole number below
// NoiseSchedule::kSteps; kFlow: from 0 to 1.
LossCoefficients loss_coefficients(DiffusionKind kind, const NoiseSchedule& schedule, double time,
                                   double weight, int64_t elements);
// What a model is given as time.
double model_time(DiffusionKind kind, double time);

// The time of the training sample at a position, and whether its class is left out, which happens
// with the probability `dropout`: functions of these arguments alone.
double training_time(DiffusionKind kind, TimeDraws draws, uint64_t seed, int64_t position);
bool drops_class(double dropout, uint64_t seed, int64_t position);
// A flow's time t, of 0 to 1, as s t / (1 + (s - 1) t), nearer to noise for s above 1: there it is
// decided what a picture shows, the more so the more pixels it has (arXiv:2403.03206, section
// 5.3.2).
double shifted_time(double time, double shift);
// Of validation sample `index`: times are spread evenly.
double evaluation_time(DiffusionKind kind, int64_t index);

}  // namespace shale::models
