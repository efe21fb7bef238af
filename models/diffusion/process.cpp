#include "shale/models/diffusion/process.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "shale/base/error.h"
#include "shale/base/rng.h"

namespace shale::models {
namespace {

constexpr double kFirstBeta = 1e-4, kLastBeta = 0.02;

std::vector<int64_t> spread(int64_t steps) {
  if (steps < 1 || steps > NoiseSchedule::kSteps) {
    throw ConfigError(
        cat("diffusion: found ", steps, " steps, expected 1 to ", NoiseSchedule::kSteps));
  }
  std::vector<int64_t> times;
  constexpr int64_t kLast = NoiseSchedule::kSteps - 1;
  if (steps == 1) return {kLast};
  const double stride = static_cast<double>(kLast) / static_cast<double>(steps - 1);
  for (int64_t i = 0; i < steps; ++i) {
    // Rounds half to even, as the paper's program does.
    times.push_back(static_cast<int64_t>(std::nearbyint(stride * static_cast<double>(i))));
  }
  return times;
}

std::vector<int64_t> all_times() {
  std::vector<int64_t> times(NoiseSchedule::kSteps);
  std::iota(times.begin(), times.end(), int64_t{0});
  return times;
}

// Returns four random words for the sample at a position in the data.
PhiloxCounter words(uint64_t seed, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  return philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                rng_key(seed ^ hash_name("diffusion"), RngDomain::kSampling));
}

// Converts a fraction of the schedule, 0 to 1, to a time. DDPM times are integers.
double time_at(DiffusionKind kind, double share) {
  if (kind == DiffusionKind::kFlow) return share;
  return std::floor(share * static_cast<double>(NoiseSchedule::kSteps));
}

}  // namespace

NoiseSchedule::NoiseSchedule() : NoiseSchedule(all_times()) {}

NoiseSchedule::NoiseSchedule(int64_t steps) : NoiseSchedule(spread(steps)) {}

NoiseSchedule::NoiseSchedule(const std::vector<int64_t>& times) {
  std::vector<double> products;
  double product = 1;
  for (int64_t i = 0; i < kSteps; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(kSteps - 1);
    product *= 1 - (kFirstBeta + (kLastBeta - kFirstBeta) * share);
    products.push_back(product);
  }
  double before = 1;
  for (const int64_t time : times) {
    Step step{.time = time, .a = products.at(static_cast<size_t>(time)), .before = before};
    step.beta = 1 - step.a / before;
    step.log_posterior = std::log(step.beta * (1 - before) / (1 - step.a));
    step.of_first = step.beta * std::sqrt(before) / (1 - step.a);
    step.of_now = (1 - before) * std::sqrt(1 - step.beta) / (1 - step.a);
    steps_.push_back(step);
    before = step.a;
  }
  Step& first = steps_.front();
  first.log_posterior = size() > 1 ? steps_[1].log_posterior : std::log(first.beta);
}

LossCoefficients loss_coefficients(DiffusionKind kind, const NoiseSchedule& schedule, double time,
                                   double weight, int64_t elements) {
  LossCoefficients c{};
  const double of_element = weight / static_cast<double>(elements);
  c[kWeight] = static_cast<float>(of_element);
  if (kind == DiffusionKind::kFlow) {
    c[kSignal] = static_cast<float>(1 - time);
    c[kSpread] = static_cast<float>(time);
    return c;
  }
  const NoiseSchedule::Step& step = schedule.at(static_cast<int64_t>(time));
  const double signal = std::sqrt(step.a), noise = std::sqrt(1 - step.a);
  c[kSignal] = static_cast<float>(signal);
  c[kSpread] = static_cast<float>(noise);
  c[kBoundWeight] = static_cast<float>(of_element / std::numbers::ln2);
  c[kLogBeta] = static_cast<float>(std::log(step.beta));
  c[kLogPosterior] = static_cast<float>(step.log_posterior);
  c[kMeanFactor] = static_cast<float>(step.of_first * noise / signal);
  c[kIsFirst] = time == 0 ? 1.f : 0.f;
  return c;
}

double model_time(DiffusionKind kind, double time) {
  return kind == DiffusionKind::kFlow ? time * static_cast<double>(NoiseSchedule::kSteps) : time;
}

double training_time(DiffusionKind kind, TimeDraws draws, uint64_t seed, int64_t position) {
  const PhiloxCounter word = words(seed, position);
  if (draws == TimeDraws::kUniform || kind == DiffusionKind::kDdpm) {
    return time_at(kind, double{uniform_f32(word[0])});
  }
  const double radius = std::sqrt(-2 * std::log(1 - double{uniform_f32(word[0])}));
  const double normal = radius * std::cos(2 * std::numbers::pi * double{uniform_f32(word[1])});
  return 1 / (1 + std::exp(-normal));
}

double shifted_time(double time, double shift) {
  return shift * time / (1 + (shift - 1) * time);
}

bool drops_class(double dropout, uint64_t seed, int64_t position) {
  return double{uniform_f32(words(seed, position)[2])} < dropout;
}

double evaluation_time(DiffusionKind kind, int64_t index) {
  // The fractional parts of the first n multiples of the golden ratio are evenly spread for every
  // n.
  double whole = 0;
  const double at = (static_cast<double>(index) + 0.5) * (std::numbers::phi - 1);
  return time_at(kind, std::modf(at, &whole));
}

}  // namespace shale::models
