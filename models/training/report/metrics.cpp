#include "shale/models/training/report/metrics.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/text.h"

namespace shale {
namespace {

// Formats a number. Unlike printf, the result does not depend on the locale.
template <typename... Format>
std::string number_text(Format... value_and_format) {
  std::array<char, 400> buffer{};  // a double in fixed notation has up to 309 digits
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value_and_format...);
  return {buffer.data(), result.ptr};
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return "null";
  return number_text(value, std::chars_format::general, digits);
}

std::string or_null(const std::optional<int64_t>& value) {
  return value ? number_text(*value) : "null";
}
std::string significant_or_null(const std::optional<double>& value, int digits) {
  return value ? significant(*value, digits) : "null";
}
// Prints a fixed number of decimals: 1234567.8 is easier to read than 1.23457e+06.
std::string fixed_or_null(const std::optional<double>& value, int decimals) {
  if (!value || !std::isfinite(*value)) return "null";
  return number_text(*value, std::chars_format::fixed, decimals);
}

// Prints counts exactly, and fractions with six digits.
std::string count_or_share(double value) {
  const bool is_count = std::abs(value) < 1e15 && value == std::floor(value);
  return is_count ? number_text(static_cast<int64_t>(value)) : significant(value, 6);
}

std::string bits_text(float value) {
  std::string digits = number_text(std::bit_cast<uint32_t>(value), 16);
  return cat("\"", std::string(8 - digits.size(), '0'), digits, "\"");
}

std::string columns_of(const ExpertMetrics& m) {
  return cat(", \"expert_tokens_min\": ", count_or_share(m.tokens_min),
             ", \"expert_tokens_mean\": ", count_or_share(m.tokens_mean),
             ", \"expert_tokens_max\": ", count_or_share(m.tokens_max),
             ", \"dropped_share\": ", significant(m.dropped_share, 6));
}

// Prints a mean over ranks, such as 2.5, without its fraction.
std::string whole(double bytes) {
  return fixed_or_null(bytes, 0);
}

std::string columns_of(const SentBytes& sent) {
  return cat(", \"sent_gradients_bytes\": ", whole(sent.gradients),
             ", \"sent_parameters_bytes\": ", whole(sent.parameters),
             ", \"sent_activations_bytes\": ", whole(sent.activations),
             sent.replicas ? cat(", \"sent_replicas_bytes\": ", whole(*sent.replicas)) : "");
}

// Returns numbers as members of a row's JSON object. Their keys begin with `prefix`.
std::string columns_of(std::string_view prefix, const std::map<std::string, double>& numbers) {
  std::string columns;
  for (const auto& [name, value] : numbers) {
    columns += cat(", \"", prefix, name, "\": ", significant(value, 6));
  }
  return columns;
}

void check_names(const std::map<std::string, double>& numbers) {
  for (const auto& [name, value] : numbers) {
    const bool fits =
        !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
    if (fits && !name.ends_with("_per_s")) continue;
    throw ConfigError(cat("metrics: a number is called \"", name,
                          "\", expected letters a to z and _, not ending in _per_s"));
  }
}

std::string line_of(const StepMetrics& m) {
  check_names(m.more);
  return cat("{\"step\": ", m.step, ", \"loss\": ", significant(m.loss, 9),
             ", \"loss_bits\": ", bits_text(m.loss),
             ", \"grad_norm\": ", significant_or_null(m.grad_norm, 9),
             ", \"lr\": ", significant_or_null(m.lr, 9), ", \"", m.item, "\": ", or_null(m.items),
             ", \"", m.item, "_per_s\": ", fixed_or_null(m.items_per_s, 1),
             ", \"step_ms\": ", fixed_or_null(m.step_ms, 3),
             ", \"comm_exposed_ms\": ", fixed_or_null(m.comm_exposed_ms, 3),
             ", \"mfu\": ", significant_or_null(m.mfu, 6),
             ", \"device_peak_bytes\": ", or_null(m.device_peak_bytes),
             ", \"host_peak_bytes\": ", or_null(m.host_peak_bytes),
             m.epoch ? cat(", \"epoch\": ", significant(*m.epoch, 9)) : "",
             m.data_wait_ms ? cat(", \"data_wait_ms\": ", fixed_or_null(m.data_wait_ms, 3)) : "",
             m.bubble_ms ? cat(", \"bubble_ms\": ", fixed_or_null(m.bubble_ms, 3)) : "",
             m.sent ? columns_of(*m.sent) : "",
             m.loss_scale ? cat(", \"loss_scale\": ", significant(*m.loss_scale, 9)) : "",
             m.skipped_steps ? cat(", \"skipped_steps\": ", *m.skipped_steps) : "",
             m.outlier_steps ? cat(", \"outlier_steps\": ", *m.outlier_steps) : "",
             m.experts ? columns_of(*m.experts) : "", columns_of("own_", m.more), "}\n");
}

std::string line_of(const EvalMetrics& m) {
  std::string shares;
  for (const auto& [k, share] : m.top_k) {
    shares += cat(", \"val_top", k, "\": ", significant(share, 6));
  }
  return cat("{\"step\": ", m.step, ", \"val_loss\": ", significant(m.val_loss, 9),
             m.ema_val_loss ? cat(", \"ema_val_loss\": ", significant(*m.ema_val_loss, 9)) : "",
             shares, ", \"val_", m.item, "\": ", or_null(m.items),
             ", \"val_ms\": ", fixed_or_null(m.ms, 3), columns_of("val_", m.more), "}\n");
}

std::string line_of(const RanksMetrics& m) {
  std::string line = cat("{\"step\": ", m.step, ", \"ranks\": ", m.ranks);
  for (const auto& [name, spread] : m.figures) {
    const auto add = [&line, &name = name](std::string_view what, const std::string& value) {
      line += cat(", \"", name, "_", what, "\": ", value);
    };
    const auto number = [&spread = spread](double Spread::*field) {
      return spread ? count_or_share(*spread.*field) : "null";
    };
    const auto rank = [&spread = spread](int Spread::*field) {
      return spread ? number_text(*spread.*field) : "null";
    };
    add("min", number(&Spread::least));
    add("min_rank", rank(&Spread::least_rank));
    add("median", number(&Spread::median));
    add("max", number(&Spread::most));
    add("max_rank", rank(&Spread::most_rank));
  }
  return line + "}\n";
}

}  // namespace

std::string to_json_line(const MetricsRow& row) {
  return std::visit([](const auto& metrics) { return line_of(metrics); }, row);
}

}  // namespace shale
