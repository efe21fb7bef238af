#include "shale/models/training/slow_links.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/optim/zero_one_adam.h"

namespace shale::models {
namespace {

// Share of a run that is done before moments are compressed, in hundredths: gradients are large and
// change fast until then (arXiv:2102.02888, section 7.1, takes 15 to 25).
constexpr int64_t kWarmUpShare = 15;

// What an option asks of the others.
class Wanted {
 public:
  explicit Wanted(std::string option) : option_(std::move(option)) {}

  template <typename... What>
  void operator()(bool holds, const What&... what) const {
    if (!holds) throw ConfigError(cat(option_, " ", what...));
  }

 private:
  std::string option_;
};

// Of options by which replicas have different gradients, or different parameters. does: what
// happens between them.
void check_replicas(const RunConfig& config, int replicas, const char* does, const Wanted& want) {
  want(replicas > 1, does,
       " replicas of the model, and there is one; want --zero 1, 2 or 3 with --shard-ranks below "
       "the number of ranks");
  want(!config.reproducible,
       "with --reproducible: means of replicas depend on their number; want one of the two");
  want(config.skip_outliers == 0, "with --skip-outliers ", config.skip_outliers,
       ": replicas would decide by different norms; want 0");
  want(!config.cuda_graph,
       "with --cuda-graph: what is captured adds gradients in all steps, and not all of these "
       "steps do; want no graphs");
}

// Fills in --variance-doubling, by which all steps before the freeze have sums of gradients: in
// runs that are short for the intervals of the paper, one-bit gradients in their first steps cost
// more than all that comes after them. And --local-doubling, by which the interval doubles after
// every eighth of the way from the freeze to the end.
void resolve_zero_one_adam(RunConfig& config, const Wanted& want) {
  constexpr int64_t kShare = 8;
  if (config.variance_doubling == 0) config.variance_doubling = config.freeze_step;
  if (config.local_doubling == 0) {
    config.local_doubling = std::max<int64_t>(1, (config.steps - config.freeze_step) / kShare);
  }
  want(config.ema == 0, "with --ema ", config.ema,
       ": replicas would average different parameters; want --ema 0");
}

void resolve_one_bit(RunConfig& config, int replicas) {
  const bool is_zero_one = config.optimizer == OptimizerKind::kZeroOneAdam;
  const Wanted want(cat("--optimizer ", one_bit_name(config.optimizer)));
  check_replicas(config, replicas, "exchanges moments between", want);
  if (config.freeze_step == 0) {
    config.freeze_step = std::max<int64_t>(1, config.steps * kWarmUpShare / 100);
  }
  if (is_zero_one) resolve_zero_one_adam(config, want);
  want(config.offload == OffloadKind::kNone, "with --offload ", config.offload_to,
       ": moments are exchanged where gradients are; want --offload none");
  // The step after the first whose interval is two.
  const int64_t first_bits = config.variance_doubling + 1;
  const bool bits_come_first = is_zero_one && first_bits < config.freeze_step;
  const int64_t unknown_from = bits_come_first ? first_bits : config.freeze_step;
  const bool clips = config.clip > 0 && unknown_from < config.steps;
  want(!clips || config.clip_replica, "with --clip ", config.clip, ": from step ", unknown_from,
       bits_come_first ? " (--variance-doubling)" : " (--freeze-step)",
       " on nobody has the gradient whose norm that is; want --clip 0, or "
       "--clip-replica, by which each replica clips its own");
}

// Throws for a flag of an optimizer that is not there.
void check_one_bit_flags(const RunConfig& config) {
  const RunConfig initial;
  const auto of = [](const char* flag, const char* optimizer) {
    throw ConfigError(
        cat(flag, " is of --optimizer ", optimizer, ", and that is another; want it left out"));
  };
  if (one_bit_name(config.optimizer) == nullptr) {
    constexpr const char* kAll = "1bit-adam, 01-adam and 1bit-lamb";
    if (config.freeze_step > 0) of("--freeze-step", kAll);
    if (config.clip_replica) of("--clip-replica", kAll);
  }
  if (config.optimizer == OptimizerKind::kZeroOneAdam) return;
  if (config.variance_doubling != initial.variance_doubling) of("--variance-doubling", "01-adam");
  if (config.local_doubling != initial.local_doubling) of("--local-doubling", "01-adam");
  if (config.local_most != initial.local_most) of("--local-most", "01-adam");
}

const char* given_of_local_steps(const RunConfig& config) {
  const RunConfig initial;
  return config.outer_start != initial.outer_start         ? "--outer-start"
         : config.outer_lr != initial.outer_lr             ? "--outer-lr"
         : config.outer_momentum != initial.outer_momentum ? "--outer-momentum"
         : config.outer_streaming                          ? "--outer-streaming"
                                                           : nullptr;
}

void check_local_steps(const RunConfig& config, int replicas) {
  const Wanted want(cat("--outer-every ", config.outer_every));
  check_replicas(config, replicas, "lets steps differ between", want);
  const char* const one_bit = one_bit_name(config.optimizer);
  want(one_bit == nullptr, "with --optimizer ", one_bit != nullptr ? one_bit : "",
       ": both say when replicas exchange; want one of the two");
  want(config.optimizer != OptimizerKind::kAdamW8bit,
       "with --optimizer adamw-8bit: other numbers of replicas take the mean of states, and codes "
       "have none; want adamw or adamw-bf16");
  want(config.offload == OffloadKind::kNone, "with --offload ", config.offload_to,
       ": outer steps change parameters on the device; want --offload none");
  want(config.ema == 0, "with --ema ", config.ema,
       ": replicas would average different parameters; want --ema 0");
  want(config.outer_start < config.steps || config.steps == 0, "with --outer-start ",
       config.outer_start, " of ", config.steps,
       " --steps: there would be no local steps; want it smaller");
}

const char* bits_of(CodedBits bits) {
  return bits == CodedBits::k8 ? " 8" : " 4";
}

// What is said of flags by which what ranks of a copy send each other is in few bits.
void check_codes(const RunConfig& config, const comm::ParallelSizes& sizes) {
  for (const auto& [flag, bits] :
       {std::pair("--quantize-gathers", config.quantize_gathers),
        std::pair("--quantize-reductions", config.quantize_reductions)}) {
    if (bits == CodedBits::kNone) continue;
    const Wanted want(cat(flag, bits_of(bits)));
    want(config.zero >= 2, "is of --zero 2 and 3, and that is ", config.zero,
         "; want one of them, or none");
    const int ranks = sizes.shard * sizes.context;
    want(ranks > 1,
         "wants several ranks that share a copy of the model, and there is one; want "
         "more ranks, or a larger --shard-ranks");
    want(!config.reproducible,
         "with --reproducible: codes round by the number of ranks; want one of the two");
    want(config.offload == OffloadKind::kNone, "with --offload ", config.offload_to,
         ": codes are made where gradients are; want --offload none");
    want(!config.cuda_graph, "with --cuda-graph: want no graphs");
  }
  if (config.quantize_reductions == CodedBits::kNone || sizes.replica == 1) return;
  throw ConfigError(
      cat("--quantize-reductions", bits_of(config.quantize_reductions), " with ", sizes.replica,
          " replicas: gradients are added again between them, not in codes; want --shard-ranks "
          "left out"));
}

}  // namespace

const char* one_bit_name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kOneBitAdam: return "1bit-adam";
    case OptimizerKind::kZeroOneAdam: return "01-adam";
    case OptimizerKind::kOneBitLamb: return "1bit-lamb";
    default: return nullptr;
  }
}

void describe_slow_links(ConfigSpec& spec, RunConfig& c) {
  spec.section("Slow links");
  spec.add("freeze-step", c.freeze_step,
           "1bit-adam, 01-adam, 1bit-lamb: steps before the second moment stays as it is; those of "
           "1bit-adam are AdamW's, of 1bit-lamb LAMB's, and replicas then exchange first moments, "
           "one bit an element, in place of gradients",
           {.min = 1, .help = {.default_text = "15% of steps"}});
  spec.add("clip-replica", c.clip_replica,
           "1bit-adam, 01-adam, 1bit-lamb: where the gradient is not added up over replicas clip "
           "that of each "
           "by its own norm, as the norm of the whole is not known");
  spec.add("variance-doubling", c.variance_doubling,
           "01-adam: updates of the second moment, by sums of gradients, before their interval "
           "doubles; between them gradients have one bit an element",
           {.min = 1,
            .max = int64_t{1} << 40,
            .help = {.default_text = "--freeze-step: there are none"}});
  spec.add(
      "local-doubling", c.local_doubling,
      "01-adam: steps after --freeze-step before the interval doubles in which replicas "
      "exchange what they have added up",
      {.min = 1, .max = int64_t{1} << 40, .help = {.default_text = "(steps - freeze-step) / 8"}});
  spec.add("local-most", c.local_most, "01-adam: the longest of these intervals, in steps",
           {.min = 1, .max = 1 << 20});
  spec.add("outer-every", c.outer_every,
           "local steps (DiLoCo): replicas, the groups of --shard-ranks ranks, step by their own "
           "gradients, and every so many steps take an outer step by the mean of what they have "
           "changed; 0: gradients of all replicas in every step",
           {.min = 0, .max = 1 << 30});
  spec.add("outer-start", c.outer_start, "local steps: steps before the first of them", {.min = 0});
  spec.add("outer-lr", c.outer_lr, "local steps: learning rate of the outer step",
           {.min = 0, .max = 10, .exclude_min = true});
  spec.add("outer-momentum", c.outer_momentum, "local steps: Nesterov momentum of the outer step",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("outer-streaming", c.outer_streaming,
           "local steps: units take turns with their outer steps, so that each step sends about as "
           "much as any other");
  const std::vector<std::pair<std::string, CodedBits>> bits = {
      {"none", CodedBits::kNone}, {"8", CodedBits::k8}, {"4", CodedBits::k4}};
  spec.add_choice("quantize-gathers", c.quantize_gathers, bits,
                  "zero 2, 3: bits in which the parameters of matrices are gathered (ZeRO++), with "
                  "a scale for 64; none: as they are")
      .may_change();
  spec.add_choice("quantize-reductions", c.quantize_reductions, bits,
                  "the same of their gradients, which go to the rank that adds them up")
      .may_change();
}

void resolve_slow_links(RunConfig& config, const comm::ParallelSizes& sizes) {
  check_codes(config, sizes);
  const int replicas = sizes.replica;
  check_one_bit_flags(config);
  if (one_bit_name(config.optimizer) != nullptr) resolve_one_bit(config, replicas);
  if (config.outer_every > 0) return check_local_steps(config, replicas);
  if (const char* const given = given_of_local_steps(config); given != nullptr) {
    throw ConfigError(cat(given, " is of --outer-every, which is 0; want it left out"));
  }
}

std::vector<StepKind> step_kinds(const RunConfig& config) {
  // What a step is, as a number that tells kinds apart.
  const auto kind_of = [&](int64_t step) {
    if (config.outer_every > 0 && step >= config.outer_start) {
      return (step - config.outer_start + 1) % config.outer_every == 0 ? 2 : 1;
    }
    if (one_bit_name(config.optimizer) == nullptr) return 0;
    const int64_t frozen = step - config.freeze_step;
    if (config.optimizer != OptimizerKind::kZeroOneAdam) return frozen >= 0 ? 1 : 0;
    if (frozen < 0) return optim::updates_variance(step, config.variance_doubling) ? 0 : 1;
    return optim::joins_replicas(frozen, config.local_doubling, config.local_most) ? 3 : 2;
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
      if (of_kind.share == share) of_kind.step = step;  // the first may do what is done once
      of_kind.share += share;
    }
  }
  return kinds;
}

}  // namespace shale::models
