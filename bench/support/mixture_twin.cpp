#include "shale/bench/support/mixture_twin.h"

#include <omp.h>

#include "shale/base/error.h"
#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

constexpr int64_t kExperts = 8, kActive = 2, kHidden = 1024;

models::LanguageModelConfig twin_config(const TrainOptions& base, bool is_mixture) {
  models::LanguageModelConfig config{.family = is_mixture ? "mixtral" : "mistral",
                                     .layers = base.layers > 0 ? base.layers : 2,
                                     .width = 768,
                                     .heads = 12,
                                     .vocab = 256,
                                     .padded_vocab = 256,
                                     .context = base.seq_len,
                                     .tied = false,
                                     .hidden = is_mixture ? kHidden : kActive * kHidden};
  if (!is_mixture) return config;
  config.experts = kExperts;
  config.active_experts = kActive;
  config.renormalise = true;
  return config;
}

// Seconds of one step without the optimizer, and of the optimizer.
std::pair<double, double> time_step(TrainLoop& loop, KernelRecorder& recorder) {
  loop.reset_times();
  const double seconds = loop.step(recorder).seconds;
  const double optimizer = loop.phase_seconds(Phase::kOptimizer);
  return {seconds - optimizer, optimizer};
}

}  // namespace

TwinTimes measure_twins(const TrainOptions& base, int64_t steps, int64_t warmup,
                        comm::World& world) {
  TrainOptions of_mixture = base, of_dense = base;
  of_mixture.config = twin_config(base, true);
  of_dense.config = twin_config(base, false);
  TrainLoop mixture(of_mixture, world), dense(of_dense, world);
  omp_set_num_threads(of_mixture.threads);
  KernelRecorder recorder;
  TwinTimes times;
  for (int64_t i = 0; i < warmup + steps; ++i) {
    const auto [mixture_seconds, mixture_optimizer] = time_step(mixture, recorder);
    const auto [dense_seconds, dense_optimizer] = time_step(dense, recorder);
    if (i < warmup) continue;
    times.mixture.add(mixture_seconds);
    times.dense.add(dense_seconds);
    times.mixture_optimizer.add(mixture_optimizer);
    times.dense_optimizer.add(dense_optimizer);
  }
  return times;
}

std::string twin_table(const TwinTimes& times) {
  const auto ms = [](const Samples& samples) {
    return cat(fixed(samples.median() * 1e3, 1), " ms");
  };
  return cat("mixture     ", ms(times.mixture), " a step without the optimizer, which takes ",
             ms(times.mixture_optimizer), "\ndense       ", ms(times.dense),
             " with the same active products, the optimizer ", ms(times.dense_optimizer),
             "\nratio       ", fixed(times.ratio(), 3), " (median of pairs), ",
             fixed(times.mixture.min() / times.dense.min(), 3),
             " (of the minima); wanted: at most ", fixed(kMostOverDense, 2),
             " at 4 x 1024 tokens\n");
}

Json twin_row(const TwinTimes& times, const TrainOptions& base) {
  return {{"kind", "mixture_twin"},
          {"experts", kExperts},
          {"active_experts", kActive},
          {"dtype", std::string(dtype_name(base.dtype))},
          {"threads", base.threads},
          {"seq_len", base.seq_len},
          {"micro_batch", base.micro_batch},
          {"mixture_ms", times.mixture.median() * 1e3},
          {"dense_ms", times.dense.median() * 1e3},
          {"mixture_optimizer_ms", times.mixture_optimizer.median() * 1e3},
          {"dense_optimizer_ms", times.dense_optimizer.median() * 1e3},
          {"ratio", times.ratio()},
          {"ratio_of_minima", times.mixture.min() / times.dense.min()}};
}

}  // namespace shale::bench
