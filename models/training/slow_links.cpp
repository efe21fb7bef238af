#include "shale/models/training/slow_links.h"

#include <algorithm>

#include "shale/base/error.h"

namespace shale::models {
namespace {

// Share of a run that is done before moments are compressed, in hundredths: gradients are large and
// change fast until then (arXiv:2102.02888, section 7.1, takes 15 to 25).
constexpr int64_t kWarmUpShare = 15;

template <typename... What>
void want(bool holds, const What&... what) {
  if (!holds) throw ConfigError(cat("--optimizer 1bit-adam ", what...));
}

// Options by which the gradient is looked at as a whole, which no rank has after the freeze.
void check_whole_gradient(const RunConfig& config) {
  want(!config.reproducible,
       "with --reproducible: means of replicas depend on their number; want one of the two");
  want(config.skip_outliers == 0, "with --skip-outliers ", config.skip_outliers,
       ": replicas would decide by different norms; want 0");
  want(config.offload == OffloadKind::kNone, "with --offload ", config.offload_to,
       ": moments are exchanged where gradients are; want --offload none");
  want(!config.cuda_graph,
       "with --cuda-graph: what is captured adds gradients in all steps, and after --freeze-step "
       "they are not added; want no graphs");
  const bool clips = config.clip > 0 && config.freeze_step < config.steps;
  want(!clips || config.clip_replica, "with --clip ", config.clip, ": from step ",
       config.freeze_step,
       " (--freeze-step) on nobody has the gradient whose norm that is; want --clip 0, or "
       "--clip-replica, by which each replica clips its own");
}

}  // namespace

void describe_slow_links(ConfigSpec& spec, RunConfig& c) {
  spec.section("Slow links");
  spec.add("freeze-step", c.freeze_step,
           "1bit-adam: steps of AdamW before its second moment stays as it is, and replicas "
           "exchange first moments, one bit an element, in place of gradients",
           {.min = 1, .help = {.default_text = "15% of steps"}});
  spec.add("clip-replica", c.clip_replica,
           "1bit-adam: after --freeze-step clip the gradient of each replica by its own norm, as "
           "the norm of the whole is not known then");
}

void resolve_slow_links(RunConfig& config, int replicas) {
  if (config.optimizer != OptimizerKind::kOneBitAdam) {
    const char* const given = config.freeze_step > 0 ? "--freeze-step"
                              : config.clip_replica  ? "--clip-replica"
                                                     : nullptr;
    if (given == nullptr) return;
    throw ConfigError(
        cat(given, " is of --optimizer 1bit-adam, and that is another; want it left out"));
  }
  want(replicas > 1,
       "exchanges moments between replicas of the model, and there is one; want --zero 1, 2 or 3 "
       "with --shard-ranks below the number of ranks");
  if (config.freeze_step == 0) {
    config.freeze_step = std::max<int64_t>(1, config.steps * kWarmUpShare / 100);
  }
  check_whole_gradient(config);
}

}  // namespace shale::models
