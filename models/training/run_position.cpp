#include "shale/models/training/run_position.h"

#include <bit>
#include <cmath>
#include <limits>

#include "shale/base/json.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {

std::string to_json(const RunPosition& position, const std::vector<std::string>& hosts) {
  Json json;
  json["samples"] = position.samples;
  if (!hosts.empty()) json["hosts"] = hosts;
  const StepHistory& history = position.history;
  json["skipped_steps"] = history.skipped_steps;
  if (history.loss_scale) {
    json["loss_scale"] = history.loss_scale->value;
    json["loss_scale_good_steps"] = history.loss_scale->good_steps;
    json["loss_scale_tolerance"] = history.loss_scale->tolerance;
  }
  if (history.earlier_updates > 0) json["earlier_updates"] = history.earlier_updates;
  if (history.outlier_steps > 0 || history.norms) json["outlier_steps"] = history.outlier_steps;
  if (history.norms) {
    auto& bits = json["grad_norm_bits"] = Json::array();
    for (const float norm : history.norms->norms) bits.push_back(std::bit_cast<uint32_t>(norm));
    json["grad_norm_count"] = history.norms->count;
  }
  if (const ValidationHistory& validations = position.validations; validations.best_loss) {
    json["best_val_loss_bits"] = std::bit_cast<uint32_t>(*validations.best_loss);
    json["best_val_step"] = validations.best_step;
    json["val_without_progress"] = validations.without_progress;
  }
  return json.dump();
}

RunPosition read_position(const CheckpointManifest& manifest, const std::string& source) {
  const JsonObject json(manifest.state, cat(source, ": state"));
  const auto count = [&](const char* key, int64_t max) {
    const int64_t value = json.integer(key);
    if (value < 0 || value > max) json.fail(key, cat("0 to ", max));
    return value;
  };
  constexpr int64_t kMaxCount = int64_t{1} << 53;  // far below 2^63, so that sums cannot overflow
  constexpr int64_t kMaxSmall = std::numeric_limits<uint32_t>::max();
  RunPosition position{.step = manifest.step, .samples = count("samples", kMaxCount)};
  StepHistory& history = position.history;
  history.skipped_steps = count("skipped_steps", manifest.step);
  if (json.has("earlier_updates")) history.earlier_updates = count("earlier_updates", kMaxCount);
  if (json.has("outlier_steps")) {
    history.outlier_steps = count("outlier_steps", history.skipped_steps);
  }
  if (json.has("grad_norm_bits")) {
    history.norms = optim::NormWindow{.count = count("grad_norm_count", kMaxCount)};
    for (const int64_t bits : json.integers("grad_norm_bits")) {
      const float norm = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (bits < 0 || bits > kMaxSmall || !std::isfinite(norm)) {
        json.fail("grad_norm_bits", "the bits of finite fp32 numbers");
      }
      history.norms->norms.push_back(norm);
    }
  }
  if (json.has("best_val_loss_bits")) {
    const auto bits = static_cast<uint32_t>(count("best_val_loss_bits", kMaxSmall));
    position.validations = {.best_loss = std::bit_cast<float>(bits),
                            .best_step = count("best_val_step", manifest.step),
                            .without_progress = count("val_without_progress", manifest.step)};
    if (!std::isfinite(*position.validations.best_loss)) {
      json.fail("best_val_loss_bits", "the bits of a finite fp32 number");
    }
  }
  if (!json.has("loss_scale")) return position;
  LossScale scale{.value = static_cast<float>(json.real("loss_scale")),
                  .good_steps = static_cast<uint32_t>(count("loss_scale_good_steps", kMaxSmall)),
                  .tolerance = static_cast<uint32_t>(count("loss_scale_tolerance", kMaxSmall)),
                  .skipped_steps = static_cast<uint32_t>(history.skipped_steps)};
  if (!(scale.value > 0)) json.fail("loss_scale", "more than 0");
  history.loss_scale = scale;
  return position;
}

}  // namespace shale::models
