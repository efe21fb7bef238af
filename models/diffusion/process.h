#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shale::models {

// How a diffusion process mixes a picture x_0 with noise at time t, and what the model predicts
// (the target).
enum class DiffusionKind {
  kDdpm,  // x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise; target: noise (arXiv:2006.11239)
  kFlow,  // x_t = (1 - t) x_0 + t noise; target: noise - x_0 (arXiv:2209.03003)
};

// Distribution of the times of training samples.
enum class TimeDraws {
  kUniform,
  kLogitNormal,  // sigmoid of a normal number (arXiv:2403.03206, section 3.1); kFlow only
};

// Linear variance schedule of DDPM in f64: beta grows from 1e-4 to 0.02 in kSteps steps.
class NoiseSchedule {
 public:
  static constexpr int64_t kSteps = 1000;

  NoiseSchedule();
  // Uses only `steps` of the kSteps times, evenly spread from the first to the last. beta of a step
  // then covers the skipped times too (arXiv:2102.09672, section 4). Throws ConfigError unless 1 <=
  // steps <= kSteps.
  explicit NoiseSchedule(int64_t steps);

  // Time of a step, from 0 to kSteps - 1, and its coefficients. a is the product of (1 - beta) over
  // all steps up to this one.
  struct Step {
    int64_t time = 0;
    double a = 0, before = 0;  // a of this step; a of the previous step, 1 for the first step
    double beta = 0;
    // Log variance of the posterior q(x_{i-1} | x_i, x_0), i.e. log of beta (1 - before) / (1 - a).
    // The first step has no posterior variance and uses that of the second step.
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
  kLogPosterior,  // log of the posterior's variance, the lower limit of a learned variance
  kMeanFactor,    // error in the posterior's mean / error in the predicted noise
  kIsFirst,       // 1 if the sample has time 0, the last step of sampling; else 0
  kLossCoefficients,
};
using LossCoefficients = std::array<float, kLossCoefficients>;

// Returns the coefficients of a sample that has `elements` elements and counts with factor
// `weight`. time: an integer below NoiseSchedule::kSteps for kDdpm, 0 to 1 for kFlow.
LossCoefficients loss_coefficients(DiffusionKind kind, const NoiseSchedule& schedule, double time,
                                   double weight, int64_t elements);
// Converts a time to the scale of the model's input, which is 0 to NoiseSchedule::kSteps.
double model_time(DiffusionKind kind, double time);

// training_time() returns the time of the training sample at a position in the data. drops_class()
// returns true, with probability `dropout`, if that sample is trained without its class. Results
// depend only on the arguments.
double training_time(DiffusionKind kind, TimeDraws draws, uint64_t seed, int64_t position);
bool drops_class(double dropout, uint64_t seed, int64_t position);
// Maps a flow's time t, 0 to 1, to s t / (1 + (s - 1) t), where s is the shift. A shift above 1
// moves times towards noise, where a picture's content is determined. Pictures with more pixels
// need more of it (arXiv:2403.03206, section 5.3.2).
double shifted_time(double time, double shift);
// Returns the time of validation sample `index`; times are evenly spread.
double evaluation_time(DiffusionKind kind, int64_t index);

}  // namespace shale::models
