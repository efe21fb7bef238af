#include "shale/models/training/batch_ramp.h"

#include <optional>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

constexpr int64_t kMax = 1 << 30;  // maximum number of samples in a batch, and of steps in a phase

}  // namespace

std::vector<BatchPhase> parse_batch_ramp(std::string_view text) {
  std::vector<BatchPhase> ramp;
  int64_t begin = 0, samples = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find(',');
    const std::string_view phase = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    const size_t colon = phase.find(':');
    const std::optional<int64_t> batch = parse_int(phase.substr(0, colon));
    const std::optional<int64_t> steps =
        colon == phase.npos ? std::nullopt : parse_int(phase.substr(colon + 1));
    const bool fits = batch && steps && *batch >= 1 && *batch <= kMax && *steps >= 1 &&
                      *steps <= kMax && !__builtin_add_overflow(samples, *batch * *steps, &samples);
    if (!fits) {
      throw ConfigError(cat("--batch-ramp: \"", excerpt(phase),
                            "\", expected BATCH:STEPS, numbers from 1 to ", kMax));
    }
    begin += *steps;
    ramp.push_back({.global_batch = *batch, .end = begin});
  }
  return ramp;
}

std::optional<std::pair<int64_t, int64_t>> parse_sample_range(std::string_view text) {
  if (text.empty()) return {};
  const size_t dash = text.find('-');
  const auto first = parse_int(text.substr(0, dash));
  const auto last = dash == text.npos ? std::nullopt : parse_int(text.substr(dash + 1));
  constexpr int64_t kMost = int64_t{1} << 53;  // far below 2^63, so that sums cannot overflow
  if (!first || !last || *first < 1 || *last < *first || *last > kMost) {
    throw ConfigError(
        cat("--skip-samples: expected A-B, the first and the last sample, counted "
            "from 1, found '",
            excerpt(text), "'"));
  }
  return std::pair(*first, *last);
}

BatchLayout batch_layout(const RunConfig& config, int64_t ranks) {
  return {.global_batch = config.global_batch,
          .micro_batch = config.micro_batch,
          .ranks = ranks,
          .ramp = parse_batch_ramp(config.batch_ramp)};
}

}  // namespace shale::models
