#include "shale/runtime/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "shale/base/error.h"
#include "shale/kernels/rope.h"
#include "shale/runtime/autograd/tape.h"

namespace shale {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

void require(bool ok, std::string_view what, double found, std::string_view want) {
  if (!ok) throw ConfigError(cat("rope: ", what, " is ", found, ", expected ", want));
}

void check(const RopeConfig& c, int64_t head_size) {
  require(head_size >= 2 && head_size % 2 == 0, "head size", static_cast<double>(head_size),
          "an even number");
  require(c.theta > 1 && std::isfinite(c.theta), "theta", c.theta, "more than 1");
  if (c.scaling == RopeScaling::kNone) return;
  require(c.factor >= 1 && std::isfinite(c.factor), "factor", c.factor, "at least 1");
  if (c.scaling == RopeScaling::kLinear) return;
  require(c.original_context >= 1, "original context", static_cast<double>(c.original_context),
          "at least 1");
  if (c.scaling == RopeScaling::kLlama3) {
    require(c.low_freq_factor > 0 && c.high_freq_factor > c.low_freq_factor, "high_freq_factor",
            c.high_freq_factor, cat("more than low_freq_factor = ", c.low_freq_factor));
  } else {
    require(c.beta_slow > 0 && c.beta_fast > c.beta_slow, "beta_fast", c.beta_fast,
            cat("more than beta_slow = ", c.beta_slow));
    require(c.attention_factor >= 0 && std::isfinite(c.attention_factor), "attention factor",
            c.attention_factor, "at least 0");
  }
}

// Interpolates linearly from f / factor (kept = 0) to the frequency f (kept = 1).
double blend(double f, double factor, double kept) {
  return f * kept + f / factor * (1 - kept);
}

double llama3(double f, const RopeConfig& c) {
  // Number of periods of this frequency within the original context.
  const double waves = static_cast<double>(c.original_context) * f / kTurn;
  const double kept = (waves - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return blend(f, c.factor, std::clamp(kept, 0.0, 1.0));
}

// Returns the index, a real number, of the pair that makes `rotations` rotations within the
// original context.
double yarn_pair(const RopeConfig& c, int64_t head_size, double rotations) {
  const double waves = static_cast<double>(c.original_context) / (rotations * kTurn);
  return static_cast<double>(head_size) * std::log(waves) / (2 * std::log(c.theta));
}

// Range of pair indices in which YaRN interpolates.
struct Ramp {
  double low, high;
};

Ramp yarn_ramp(const RopeConfig& c, int64_t head_size) {
  double low = yarn_pair(c, head_size, c.beta_fast), high = yarn_pair(c, head_size, c.beta_slow);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_size - 1));
  return {low, high == low ? high + 0.001 : high};
}

Tensor turned(const Tensor& x, const RopeTable& table, const RopeOptions& options, bool inverse) {
  Tensor y = empty(x.context(), x.shape(), x.dtype());
  kernels::rope(x.exec(),
                {.x = x,
                 .y = y,
                 .turns = table.turns().data(),
                 .positions = options.positions.defined() ? options.positions.view() : View{},
                 .first_position = options.first_position,
                 .scale = table.scale(),
                 .interleaved = options.interleaved,
                 .inverse = inverse});
  return y;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& config, int64_t head_size) {
  check(config, head_size);
  const Ramp ramp = config.scaling == RopeScaling::kYarn ? yarn_ramp(config, head_size) : Ramp{};
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_size / 2; ++i) {
    const double pair = static_cast<double>(i);
    const double f = std::pow(config.theta, -2 * pair / static_cast<double>(head_size));
    switch (config.scaling) {
      case RopeScaling::kNone: frequencies.push_back(f); break;
      case RopeScaling::kLinear: frequencies.push_back(f / config.factor); break;
      case RopeScaling::kLlama3: frequencies.push_back(llama3(f, config)); break;
      case RopeScaling::kYarn: {
        const double scaled = std::clamp((pair - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
        frequencies.push_back(blend(f, config.factor, 1 - scaled));
      }
    }
  }
  return frequencies;
}

RopeTable::RopeTable(const RopeConfig& config, int64_t head_size) {
  for (const double f : rope_frequencies(config, head_size)) {
    // fits into 64 bits, because f is at most 1
    turns_.push_back(static_cast<uint64_t>(std::ldexp(f / kTurn, 64)));
  }
  require(head_size <= kernels::kMaxRopeHeadSize, "head size", static_cast<double>(head_size),
          cat("at most ", kernels::kMaxRopeHeadSize));
  if (config.scaling == RopeScaling::kYarn) {
    const double by_factor = 0.1 * std::log(config.factor) + 1;
    scale_ = static_cast<float>(config.attention_factor > 0 ? config.attention_factor : by_factor);
  }
}

Tensor rope(const Tensor& x, const std::shared_ptr<const RopeTable>& table,
            const RopeOptions& options) {
  if (x.ndim() != 4 || x.size(3) != 2 * static_cast<int64_t>(table->turns().size())) {
    throw ShapeError(cat("rope", ": x is ", x.view(), ", expected [B, T, H, ",
                         2 * table->turns().size(), "] as the table's head size"));
  }
  Tensor y = turned(x, *table, options, /*inverse=*/false);
  record("rope", {x}, {&y}, [table, options](BackwardArgs& args) {
    return Grads{turned(args.dy(), *table, options, /*inverse=*/true)};
  });
  return y;
}

}  // namespace shale
