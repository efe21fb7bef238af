#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shale::models {

// Mixtures of pictures and noise, and the value that the model predicts.
enum class DiffusionKind {
  kDdpm,  // x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise; target: noise (arXiv:2006.11239)
  kFlow,  // x_t = (1 - t) x_0 + t noise; target: noise - x_0 (arXiv:2209.03003)
};

// Distribution of the times of training samples.
enum class TimeDraws {
  kUniform,
  kLogitNormal,  // sigmoid of a normal number (arXiv:2403.03206, section 3.1); kFlow only
};

// Linear variance schedule of DDPM: T steps, beta from 1e-4 to 0.02; in f64.
class NoiseSchedule {
 public:
  static constexpr int64_t kSteps = 1000;

  NoiseSchedule();
  // Uses `steps` evenly spread steps, including the first and the last, with the variances between
  // them (arXiv:2102.09672, section 4). Throws ConfigError unless 1 <= steps <= kSteps.
  explicit NoiseSchedule(int64_t steps);

  // Step i: its time among kSteps, and its coefficients; a = product of (1 - beta) up to i.
  struct Step {
    int64_t time = 0;
    double a = 0, before = 0;  // a of this step, and of the previous one (1 for the first step)
    double beta = 0;
    // Log variance of the posterior q(x_{i-1} | x_i, x_0): beta (1 - before) / (1 - a); the first
    // step has no posterior variance and uses that of the second step.
    double log_posterior = 0;
    // The posterior's mean is of_first * x_0 + of_now * x_i.
    double of_first = 0, of_now = 0;
  };
  int64_t size() const { return static_cast<int64_t>(steps_.size()); }
  const Step& at(int64_t i) const { return steps_.at(static_cast<size_t>(i)); }

 private:
  explicit NoiseSchedule(const std::vector<int64_t>& times);

  std::vector<Step> steps_;
};

// Coefficients of a sample's loss.
enum LossCoefficient : int {
  kSignal,        // x_t = kSignal x_0 + kSpread noise
  kSpread,        // see kSignal
  kWeight,        // weight of an element's squared error
  kBoundWeight,   // weight of an element's variational bound
  kLogBeta,       // log of the upper limit of a learned variance
  kLogPosterior,  // log of the variance of the posterior, the lower limit of a learned one
  kMeanFactor,    // factor from an error in the noise to one in the posterior's mean
  kIsFirst,       // 1: the sample has time 0, whose step results in x_0
  kLossCoefficients,
};
using LossCoefficients = std::array<float, kLossCoefficients>;

// Returns the coefficients of a sample of `elements` elements with weight `weight`. kDdpm: time is
// an integer below NoiseSchedule::kSteps; kFlow: from 0 to 1.
LossCoefficients loss_coefficients(DiffusionKind kind, const NoiseSchedule& schedule, double time,
                                   double weight, int64_t elements);
// Converts a time to the scale of the model's input, 0 to NoiseSchedule::kSteps.
double model_time(DiffusionKind kind, double time);

// Return the time of the training sample at a position, and whether its class is dropped, with
// probability `dropout`. Pure functions of their arguments.
double training_time(DiffusionKind kind, TimeDraws draws, uint64_t seed, int64_t position);
bool drops_class(double dropout, uint64_t seed, int64_t position);
// Maps a flow's time t from 0 to 1 to s t / (1 + (s - 1) t), which is nearer to noise for a shift s
// above 1. Times near noise determine a picture's content, the more so the more pixels it has
// (arXiv:2403.03206, section 5.3.2).
double shifted_time(double time, double shift);
// Returns the time of validation sample `index`; times are evenly spread.
double evaluation_time(DiffusionKind kind, int64_t index);

}  // namespace shale::models
