#include "shale/base/removed_options.h"

#include <array>

namespace shale {

namespace {

constexpr std::string_view kPlan = "use shale plan --layouts --write FILE, and --config FILE";
constexpr std::string_view kPattern = "describe the pattern in a file for --attention-pattern";
constexpr std::string_view kSample = "use this flag with shale generate";

}  // namespace

std::span<const RemovedOption> removed_options() {
  static constexpr auto kRows = std::to_array<RemovedOption>({
      {"optimizer", "01-adam", "use --optimizer 1bit-adam"},
      {"optimizer", "1bit-lamb", "use --optimizer 1bit-adam or lamb"},
      {"variance-doubling", "", "use --optimizer 1bit-adam with --freeze-step", "0"},
      {"local-doubling", "", "use --outer-every", "0"},
      {"local-most", "", "use --outer-every", "4"},
      {"print-options", "", "use --help table"},
      {"tensor-leaves", "", "use --tensor with that number", "0", true},
      {"context-leaves", "", "use --context with that number", "0", true},
      {"parallel", "", kPlan, "\"none\"", true},
      {"cluster", "", kPlan, "\"\"", true},
      {"search-dry-runs", "", kPlan, "0", true},
      {"micro-batches", "", "use --global-batch = this number x --micro-batch x data ranks", "0",
       true},
      {"attention-block", "", kPattern, "0", true},
      {"attention-local", "", kPattern, "0", true},
      {"attention-global", "", kPattern, "0", true},
      {"attention-random", "", kPattern, "0", true},
      {"lora-rank-stabilized", "", "use --lora-alpha, multiplied by the square root of --lora-rank",
       "false"},
      {"muon-scale", "", "leave it out, and use the lr and weight decay of AdamW",
       "\"match-rms-adamw\""},
      {"trust-min", "", "leave it out: it is 0", "0"},
      {"trust-max", "", "leave it out: it is 10", "10"},
      {"skip-window", "", "leave it out: it is 128 steps", "128"},
      {"prefetch", "", "leave it out: one block is gathered ahead", "1", true},
      {"reshard", "", "leave it out, or use --zero 2 to keep parameters gathered", "\"auto\"",
       true},
      {"persist-below", "", "leave it out: --zero 3 shards all parameters", "0", true},
      {"clip-replica", "", "leave it out: --optimizer 1bit-adam clips per replica", "false", true},
      {"tensor-pieces", "", "leave it out: it is the number of ranks of --tensor", "0", true},
      {"context-group", "", "leave it out: it is chosen from --context and the heads", "0", true},
      {"pipeline-split", "", "leave it out: pipeline stages get equal costs", "\"\"", true},
      {"loss-scale-window", "", "leave it out: it is 2000 steps", "2000", true},
      {"loss-scale-hysteresis", "", "leave it out: each overflow lowers the scale", "1", true},
      {"tf32", "", "use --dtype tf32", "false", true},
      {"dependent-launch", "", "leave it out; bench_train measures it", "false", true},
      {"evaluate-ema", "", "leave it out: with --ema, validation includes the average", "false",
       true},
      {"warn-exposed", "", "use shale report, which shows what ranks wait for", "0", true},
      {"measure-peak", "", "leave it out: the peak rate of GPUs is always measured", "false", true},
      {"prometheus-listen", "", "use --prometheus with that port", "\"\"", true},
      {"replay", "", "use python3 -m shale.track OUT --mlflow"},
      {"temperature", "", kSample, "0.8", true},
      {"top-k", "", kSample, "50", true},
      {"validate", "", "leave it out: each token is checked when it is used", "false", true},
      {"tensorboard-histograms", "", "leave it out: --tensorboard writes scalars", "0", true},
      {"dpo-label-smoothing", "", "leave it out: it is 0", "0"},
      {"attention-softcap", "", "leave it out: no model family has one", "0"},
      {"logit-softcap", "", "leave it out: no model family has one", "0"},
      {"memory-profile", "", "use --trace with that file", "\"\"", true},
      {"start-timeout", "", "use --timeout; the start may take ten times that, up to 600 s", "600",
       true},
      {"data-format", "raw", "use --data-format u8, u16 or u32", {}, true},
      {"data-dtype", "", "use --data-format with that value", "\"auto\"", true},
      {"expect-bandwidth", "", "leave it out; shale doctor --bench measures links", "0", true},
      {"export-merged", "", "use shale ckpt export, which merges adapters", "false", true},
      {"decay-shape", "", "use --schedule wsd or wsd-1-sqrt", "\"linear\""},
  });
  return kRows;
}

const RemovedOption* find_removed_option(std::string_view name, std::string_view value) {
  for (const RemovedOption& option : removed_options()) {
    if (option.name == name && option.value == value) return &option;
  }
  return nullptr;
}

}  // namespace shale
