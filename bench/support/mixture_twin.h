#pragma once

#include "shale/bench/support/results.h"
#include "shale/bench/support/train_loop.h"

namespace shale::bench {

// Steps of a mixture of experts beside those of a dense model with the same active products: what
// routing, moving rows and cutting products into those of experts costs. Both have 2 layers of
// width 768, 12 heads and a vocabulary of 256; the mixture 8 experts of 1024 hidden channels, of
// which 2 are active, the dense one 2048 hidden channels.
struct TwinTimes {
  // Of each step, without the optimizer, which steps four times as many parameters; and that alone.
  Samples mixture, dense, mixture_optimizer, dense_optimizer;

  double ratio() const { return paired_ratio(mixture, dense); }
};

inline constexpr double kMostOverDense = 1.15;  // wanted of ratio(), at 4 x 1,024 tokens

// Steps of both in turns. Takes batch, sequence, dtype and threads from `base`. Collective.
TwinTimes measure_twins(const TrainOptions& base, int64_t steps, int64_t warmup,
                        comm::World& world);

std::string twin_table(const TwinTimes& times);
Json twin_row(const TwinTimes& times, const TrainOptions& base);

}  // namespace shale::bench
