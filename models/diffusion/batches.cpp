#include "shale/models/diffusion/batches.h"

#include <algorithm>
#include <vector>

#include "shale/kernels/loss.h"
#include "shale/kernels/random.h"

namespace shale::models {
namespace {

double time_of(const DiffusionBatches& spec, int64_t position) {
  if (spec.evaluates) return evaluation_time(spec.kind, position);
  const double time = training_time(spec.kind, spec.draws, spec.seed, position);
  return spec.kind == DiffusionKind::kFlow ? shifted_time(time, spec.shift) : time;
}

// Adds the other inputs of the loss to a batch of images and labels.
void add_noise(const DiffusionBatches& spec, const NoiseSchedule& schedule, Batch& batch) {
  const Shape shape = batch.field("images").shape;
  const int64_t N = shape[0], elements = shape.numel() / std::max<int64_t>(N, 1);
  // Adds all fields before filling any, because adding a field may invalidate references to the
  // others.
  batch.set("noise", DType::kF32, shape);
  batch.set("times", DType::kF32, {N, kTimeFeatures});
  batch.set("coefficients", DType::kF32, {N, kLossCoefficients});
  const auto labels = batch.set("labels", DType::kI32, {N}).values<int32_t>();
  const auto noise = batch.set("noise", DType::kF32, shape).values<float>();
  const auto of_loss =
      batch.set("coefficients", DType::kF32, {N, kLossCoefficients}).values<float>();
  write_noise(noise, spec.seed, spec.evaluates ? "validation noise" : "training noise",
              batch.first_position * elements);
  std::vector<double> times;
  for (int64_t row = 0; row < N; ++row) {
    const int64_t position = batch.first_position + row;
    int32_t& label = labels[static_cast<size_t>(row)];
    const bool counts = label != kernels::kIgnoreTarget;
    const double time = time_of(spec, position);
    const LossCoefficients c =
        loss_coefficients(spec.kind, schedule, time, counts ? 1 : 0, elements);
    std::ranges::copy(c, of_loss.begin() + row * kLossCoefficients);
    const bool drops = !spec.evaluates && drops_class(spec.label_dropout, spec.seed, position);
    if (!counts || drops) label = spec.no_class;
    times.push_back(model_time(spec.kind, time));
  }
  std::ranges::copy(time_features(times, spec.variant),
                    batch.set("times", DType::kF32, {N, kTimeFeatures}).values<float>().begin());
}

}  // namespace

void write_noise(std::span<float> to, uint64_t seed, std::string_view stream, int64_t first) {
  kernels::random_normal({}, {.y = make_view(to.data(), {std::ssize(to)}),
                              .seed = seed,
                              .stream = hash_name(stream),
                              .first = first});
}

BatchSource diffusion_batches(DiffusionBatches spec) {
  return [spec = std::move(spec), schedule = NoiseSchedule()](int64_t i, Batch& batch) {
    if (!spec.images(i, batch)) return false;
    add_noise(spec, schedule, batch);
    return true;
  };
}

}  // namespace shale::models
