#include "shale/models/training/slow_links.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"

namespace shale::models {
namespace {

// Percentage of a run's steps before 1-bit Adam compresses moments. Until then gradients are large
// and change fast (arXiv:2102.02888, section 7.1, uses 15 to 25).
constexpr int64_t kWarmUpShare = 15;

// Throws ConfigError if an option does not have the other options that it requires.
class OptionCheck {
 public:
  explicit OptionCheck(std::string option) : option_(std::move(option)) {}

  template <typename... What>
  void operator()(bool holds, const What&... what) const {
    if (!holds) throw ConfigError(cat(option_, " ", what...));
  }

 private:
  std::string option_;
};

// Checks that there are several replicas, for an option that needs them. does: text that begins the
// message, such as "needs several".
void check_replicas(int replicas, const char* does, const OptionCheck& want) {
  want(replicas > 1, does,
       " replicas of the model, found one; use --zero 1, 2 or 3 with --shard-ranks below the "
       "number of ranks");
}

void resolve_one_bit_adam(RunConfig& config, int replicas) {
  const OptionCheck want("--optimizer 1bit-adam");
  check_replicas(replicas, "needs several", want);
  if (config.freeze_step == 0) {
    config.freeze_step = std::max<int64_t>(1, config.steps * kWarmUpShare / 100);
  }
}

void check_local_steps(const RunConfig& config, int replicas) {
  const OptionCheck want(cat("--outer-every ", config.outer_every));
  check_replicas(replicas, "needs several", want);
  want(config.outer_start < config.steps || config.steps == 0, "with --outer-start ",
       config.outer_start, ": expected less than --steps, which is ", config.steps);
}

const char* bits_of(CodedBits bits) {
  return bits == CodedBits::k8 ? " 8" : " 4";
}

// Checks --quantize-gathers and --quantize-reductions.
void check_codes(const RunConfig& config, const comm::ParallelSizes& sizes) {
  for (const auto& [flag, bits] :
       {std::pair("--quantize-gathers", config.quantize_gathers),
        std::pair("--quantize-reductions", config.quantize_reductions)}) {
    if (bits == CodedBits::kNone) continue;
    const OptionCheck want(cat(flag, bits_of(bits)));
    want(config.zero >= 2, "needs --zero 2 or 3 (found --zero ", config.zero, ")");
    const int ranks = sizes.shard * sizes.context;
    want(ranks > 1,
         "needs several ranks per copy of the model, found one; use more ranks, or a larger "
         "--shard-ranks");
  }
  if (config.quantize_reductions == CodedBits::kNone || sizes.replica == 1) return;
  throw ConfigError(
      cat("--quantize-reductions", bits_of(config.quantize_reductions), " with ", sizes.replica,
          " replicas: gradients are reduced between them without quantization; leave out "
          "--shard-ranks"));
}

}  // namespace

void describe_slow_links(ConfigSpec& spec, RunConfig& c) {
  spec.section("Slow links");
  spec.add("freeze-step", c.freeze_step,
           "1bit-adam: AdamW steps before the second moment is frozen and momenta are exchanged in "
           "1 bit",
           {.min = 1, .help = {.default_text = "15% of steps"}});
  spec.add(
      "outer-every", c.outer_every,
      "DiLoCo: local steps between outer steps of replicas (groups of --shard-ranks ranks); 0: off",
      {.min = 0, .max = 1 << 30});
  spec.add("outer-start", c.outer_start, "DiLoCo: ordinary steps before the first local step",
           {.min = 0});
  spec.add("outer-lr", c.outer_lr, "DiLoCo: learning rate of the outer step",
           {.min = 0, .max = 10, .exclude_min = true});
  spec.add("outer-momentum", c.outer_momentum, "DiLoCo: Nesterov momentum of the outer step",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add(
      "outer-streaming", c.outer_streaming,
      "DiLoCo: take the outer steps of different blocks in different steps, to even out traffic");
  const std::vector<std::pair<std::string, CodedBits>> bits = {
      {"none", CodedBits::kNone}, {"8", CodedBits::k8}, {"4", CodedBits::k4}};
  spec.add_choice("quantize-gathers", c.quantize_gathers, bits,
                  "with --zero 2 or 3: bits of gathered weight matrices, with a scale per 64 "
                  "values (ZeRO++); none: off")
      .may_change();
  spec.add_choice("quantize-reductions", c.quantize_reductions, bits,
                  "with --zero 2 or 3: bits of reduced gradients of weight matrices; none: off")
      .may_change();
}

void resolve_slow_links(RunConfig& config, const comm::ParallelSizes& sizes) {
  check_codes(config, sizes);
  const int replicas = sizes.replica;
  if (config.optimizer == OptimizerKind::kOneBitAdam) resolve_one_bit_adam(config, replicas);
  if (config.outer_every > 0) check_local_steps(config, replicas);
}

std::vector<StepKind> step_kinds(const RunConfig& config) {
  // Returns a number that identifies the kind of a step.
  const auto kind_of = [&](int64_t step) {
    if (config.outer_every > 0 && step >= config.outer_start) {
      return (step - config.outer_start + 1) % config.outer_every == 0 ? 2 : 1;
    }
    return config.optimizer == OptimizerKind::kOneBitAdam && step >= config.freeze_step ? 1 : 0;
  };
  std::vector<StepKind> kinds;
  std::vector<int> seen;
  const double share = 1 / static_cast<double>(std::max<int64_t>(config.steps, 1));
  for (int64_t step = 0; step == 0 || step < config.steps; ++step) {
    const int kind = kind_of(step);
    const auto found = std::find(seen.begin(), seen.end(), kind);
    if (found == seen.end()) {
      seen.push_back(kind);
      kinds.push_back({.step = step, .share = share});
    } else {
      StepKind& of_kind = kinds[static_cast<size_t>(found - seen.begin())];
      // Prefers a later step as example, because the first one may differ.
      if (of_kind.share == share) of_kind.step = step;
      of_kind.share += share;
    }
  }
  return kinds;
}

}  // namespace shale::models
