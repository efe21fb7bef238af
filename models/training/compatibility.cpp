#include "shale/models/training/compatibility.h"

#include <array>

namespace shale::models {
namespace {

using Use = OptionUse<RunConfig>;
using enum Why;

template <auto kField>
std::string coded_bits(const RunConfig& c, const char* flag) {
  const CodedBits bits = c.*kField;
  return option_text(bits != CodedBits::kNone, flag, bits == CodedBits::k8 ? 8 : 4);
}
template <OptimizerKind kKind>
std::string is_optimizer(const RunConfig& c, const char* name) {
  return option_text(c.optimizer == kKind, name);
}

constexpr Use kPipeline = {"--pipeline", above<&RunConfig::pipeline, 1>};
constexpr Use kExpert = {"--expert", above<&RunConfig::expert, 1>};
constexpr Use kHosted = {"--ranks-per-process", above<&RunConfig::ranks_per_process, 1>};
constexpr Use kGroupRing = {
    "--context-kind ulysses+ring", [](const RunConfig& c, const char* name) {
      return option_text(c.context > 1 && c.context_kind == comm::ContextKind::kUlyssesRing, name);
    }};
constexpr Use kStage23 = {"--zero 2, 3", [](const RunConfig& c, const char*) {
                            return above<&RunConfig::zero, 1>(c, "--zero");
                          }};
constexpr Use kGraphs = {"--cuda-graph", is_set<&RunConfig::cuda_graph>};
constexpr Use kRamp = {"--batch-ramp", is_given<&RunConfig::batch_ramp>};
constexpr Use kReproducible = {"--reproducible", is_set<&RunConfig::reproducible>};
constexpr Use kReshardRanks = {"--reshard-ranks", above<&RunConfig::reshard_ranks, 0>};
constexpr Use kOffload = {"--offload", [](const RunConfig& c, const char* flag) {
                            return option_text(c.offload != OffloadKind::kNone, flag, c.offload_to);
                          }};
constexpr Use kOffloadActivations = {"--offload-activations",
                                     is_set<&RunConfig::offload_activations>};
constexpr Use kGradBf16 = {"--grad-dtype bf16", [](const RunConfig& c, const char*) {
                             return option_text(c.grad_dtype != DType::kF32, "--grad-dtype",
                                                dtype_name(c.grad_dtype));
                           }};
constexpr Use kSkipOutliers = {"--skip-outliers", above<&RunConfig::skip_outliers, 0>};
constexpr Use kEma = {"--ema", above<&RunConfig::ema, 0>};
constexpr Use kOuter = {"--outer-every", above<&RunConfig::outer_every, 0>};
constexpr Use kCodedGathers = {"--quantize-gathers", coded_bits<&RunConfig::quantize_gathers>};
constexpr Use kCodedReductions = {"--quantize-reductions",
                                  coded_bits<&RunConfig::quantize_reductions>};
constexpr Use kAdamW8bit = {"--optimizer adamw-8bit", is_optimizer<OptimizerKind::kAdamW8bit>};
constexpr Use kAdafactor = {"--optimizer adafactor", is_optimizer<OptimizerKind::kAdafactor>};
constexpr Use kLamb = {"--optimizer lamb", is_optimizer<OptimizerKind::kLamb>};
constexpr Use kOneBitAdam = {"--optimizer 1bit-adam", is_optimizer<OptimizerKind::kOneBitAdam>};

constexpr auto kTable = std::to_array<Incompatible<RunConfig>>({
    {kPipeline, kStage23, kNotBuilt,
     "every micro-batch would reduce gradients or gather parameters", "--zero 0 or 1"},
    {kPipeline, kRamp, kNotBuilt, "a schedule has the same number of micro-batches in all steps",
     "no --batch-ramp"},
    {kPipeline, kGraphs, kNotBuilt, "the host takes part in transfers between stages",
     "no --cuda-graph"},
    {kPipeline, kOffloadActivations, kNotBuilt,
     "stages keep the activations of several micro-batches",
     "--recompute, or a schedule that keeps fewer"},
    {kExpert, kReproducible, kMathematics,
     "GEMMs of experts have rows of several ranks, so rounding depends on the number of ranks",
     "--expert 1"},
    {kExpert, kHosted, kMathematics,
     "GEMMs of experts have rows of several ranks, so rounding depends on the number of ranks",
     "as many processes as ranks"},
    {kExpert, kAdamW8bit, kNotBuilt, "statistics of adamw-8bit cover whole matrices",
     "muon, lamb, adafactor, or an optimizer that works by elements, such as adamw"},
    {kExpert, kReshardRanks, kNotBuilt, "not all ranks of a reshard group have the same experts",
     "--expert 1 or no --reshard-ranks"},
    {kExpert, kGraphs, kNotBuilt, "the host must know how many rows are sent", "no --cuda-graph"},
    {kHosted, kGraphs, kNotBuilt, "ranks of a process take turns, which a graph does not capture",
     "as many processes as ranks"},
    {kGroupRing, kGraphs, kNotBuilt, "groups of ulysses+ring cannot be captured",
     "--context-kind ulysses or ring"},
    {kGraphs, kRamp, kNotBuilt, "a graph has the same micro-batches in every step",
     "no --batch-ramp"},
    {kGraphs, kOffload, kNotBuilt, "the host takes part in the step", "--offload none"},
    {kGraphs, kOffloadActivations, kNotBuilt, "the host takes part in the step",
     "no --offload-activations"},
    {kReproducible, kGradBf16, kMathematics, "rounded sums depend on the number of ranks",
     "--grad-dtype fp32"},
    {kOffload, kAdafactor, kNotBuilt,
     "states of adafactor are tiny, and its statistics are reduced over ranks", "--offload none"},
    {kOffload, kLamb, kNotBuilt, "norms of lamb are reduced over ranks before the CPU could step",
     "--offload none"},
    {kOneBitAdam, kReproducible, kMathematics, "averages over replicas depend on their number",
     "one of the two"},
    {kOneBitAdam, kSkipOutliers, kMathematics, "replicas have different gradient norms",
     "--skip-outliers 0"},
    {kOneBitAdam, kGraphs, kNotBuilt,
     "a captured step always reduces gradients, but not all 1bit-adam steps do", "no --cuda-graph"},
    {kOneBitAdam, kOffload, kNotBuilt, "momenta are exchanged on the device", "--offload none"},
    {kOneBitAdam, kOuter, kMathematics, "both decide when replicas communicate", "one of the two"},
    {kOuter, kReproducible, kMathematics, "averages over replicas depend on their number",
     "one of the two"},
    {kOuter, kSkipOutliers, kMathematics, "replicas have different gradient norms",
     "--skip-outliers 0"},
    {kOuter, kGraphs, kNotBuilt, "a captured step always reduces gradients, but local steps do not",
     "no --cuda-graph"},
    {kOuter, kAdamW8bit, kNotBuilt,
     "resuming on other ranks averages states, but quantized states have no average",
     "--optimizer adamw or adamw-bf16"},
    {kOuter, kOffload, kNotBuilt, "outer steps change parameters on the device", "--offload none"},
    {kOuter, kEma, kNotBuilt, "replicas have different parameters", "--ema 0"},
    {kCodedGathers, kReproducible, kMathematics, "rounding depends on the number of ranks",
     "one of the two"},
    {kCodedReductions, kReproducible, kMathematics, "rounding depends on the number of ranks",
     "one of the two"},
    {kCodedGathers, kOffload, kNotBuilt, "quantization is done on the device", "--offload none"},
    {kCodedReductions, kOffload, kNotBuilt, "quantization is done on the device", "--offload none"},
    {kCodedGathers, kGraphs, kNotBuilt, "quantized collectives cannot be captured",
     "no --cuda-graph"},
    {kCodedReductions, kGraphs, kNotBuilt, "quantized collectives cannot be captured",
     "no --cuda-graph"},
});

}  // namespace

std::span<const Incompatible<RunConfig>> incompatible_run_options() {
  return kTable;
}

}  // namespace shale::models
