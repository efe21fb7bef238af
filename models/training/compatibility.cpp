#include "shale/models/training/compatibility.h"

#include <array>

namespace shale::models {
namespace {

using Use = OptionUse<RunConfig>;
using enum Why;

constexpr Use kPipeline = {"--pipeline", [](const RunConfig& c) {
                             return option_text(c.pipeline > 1, "--pipeline", c.pipeline);
                           }};
constexpr Use kExpert = {
    "--expert", [](const RunConfig& c) { return option_text(c.expert > 1, "--expert", c.expert); }};
constexpr Use kHosted = {"--ranks-per-process", [](const RunConfig& c) {
                           return option_text(c.ranks_per_process > 1, "--ranks-per-process",
                                              c.ranks_per_process);
                         }};
constexpr Use kGroupRing = {
    "--context-kind ulysses+ring", [](const RunConfig& c) {
      return option_text(c.context > 1 && c.context_kind == comm::ContextKind::kUlyssesRing,
                         "--context-kind ulysses+ring");
    }};
constexpr Use kStage23 = {
    "--zero 2, 3", [](const RunConfig& c) { return option_text(c.zero > 1, "--zero", c.zero); }};
constexpr Use kGraphs = {
    "--cuda-graph", [](const RunConfig& c) { return option_text(c.cuda_graph, "--cuda-graph"); }};
constexpr Use kRamp = {"--batch-ramp", [](const RunConfig& c) {
                         return option_text(!c.batch_ramp.empty(), "--batch-ramp", c.batch_ramp);
                       }};
constexpr Use kReproducible = {"--reproducible", [](const RunConfig& c) {
                                 return option_text(c.reproducible, "--reproducible");
                               }};
constexpr Use kReshardRanks = {"--reshard-ranks", [](const RunConfig& c) {
                                 return option_text(c.reshard_ranks > 0, "--reshard-ranks",
                                                    c.reshard_ranks);
                               }};
constexpr Use kOffload = {"--offload", [](const RunConfig& c) {
                            return option_text(c.offload != OffloadKind::kNone, "--offload",
                                               c.offload_to);
                          }};
constexpr Use kOffloadActivations = {
    "--offload-activations",
    [](const RunConfig& c) { return option_text(c.offload_activations, "--offload-activations"); }};
constexpr Use kGradBf16 = {"--grad-dtype bf16", [](const RunConfig& c) {
                             return option_text(c.grad_dtype != DType::kF32, "--grad-dtype",
                                                dtype_name(c.grad_dtype));
                           }};
constexpr Use kSkipOutliers = {"--skip-outliers", [](const RunConfig& c) {
                                 return option_text(c.skip_outliers > 0, "--skip-outliers",
                                                    c.skip_outliers);
                               }};
constexpr Use kEma = {"--ema",
                      [](const RunConfig& c) { return option_text(c.ema > 0, "--ema", c.ema); }};
constexpr Use kOuter = {"--outer-every", [](const RunConfig& c) {
                          return option_text(c.outer_every > 0, "--outer-every", c.outer_every);
                        }};
std::string coded_bits_text(CodedBits bits, const char* flag) {
  return option_text(bits != CodedBits::kNone, flag, bits == CodedBits::k8 ? 8 : 4);
}
constexpr Use kCodedGathers = {"--quantize-gathers", [](const RunConfig& c) {
                                 return coded_bits_text(c.quantize_gathers, "--quantize-gathers");
                               }};
constexpr Use kCodedReductions = {"--quantize-reductions", [](const RunConfig& c) {
                                    return coded_bits_text(c.quantize_reductions,
                                                           "--quantize-reductions");
                                  }};

template <OptimizerKind kKind>
std::string optimizer_text(const RunConfig& c, const char* name) {
  return option_text(c.optimizer == kKind, "--optimizer", name);
}
constexpr Use kAdamW8bit = {"--optimizer adamw-8bit", [](const RunConfig& c) {
                              return optimizer_text<OptimizerKind::kAdamW8bit>(c, "adamw-8bit");
                            }};
constexpr Use kAdafactor = {"--optimizer adafactor", [](const RunConfig& c) {
                              return optimizer_text<OptimizerKind::kAdafactor>(c, "adafactor");
                            }};
constexpr Use kLamb = {"--optimizer lamb", [](const RunConfig& c) {
                         return optimizer_text<OptimizerKind::kLamb>(c, "lamb");
                       }};
constexpr Use kOneBitAdam = {"--optimizer 1bit-adam", [](const RunConfig& c) {
                               return optimizer_text<OptimizerKind::kOneBitAdam>(c, "1bit-adam");
                             }};

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
     "GEMMs of experts have rows of several ranks, and rounding depends on their number",
     "--expert 1"},
    {kExpert, kHosted, kMathematics,
     "GEMMs of experts have rows of several ranks, and rounding depends on their number",
     "as many processes as ranks"},
    {kExpert, kAdamW8bit, kNotBuilt, "its statistics cover whole matrices",
     "muon, lamb, adafactor, or an optimizer that works by elements, such as adamw"},
    {kExpert, kReshardRanks, kNotBuilt, "not all of these ranks have the same experts",
     "--expert 1 or no --reshard-ranks"},
    {kExpert, kGraphs, kNotBuilt, "the host must know how many rows are sent", "no --cuda-graph"},
    {kHosted, kGraphs, kNotBuilt, "ranks of a process take turns, which a graph does not capture",
     "as many processes as ranks"},
    {kGroupRing, kGraphs, kNotBuilt, "its groups cannot be captured",
     "--context-kind ulysses or ring"},
    {kGraphs, kRamp, kNotBuilt, "a graph has the same micro-batches in every step",
     "no --batch-ramp"},
    {kGraphs, kOffload, kNotBuilt, "the host takes part in the step", "--offload none"},
    {kGraphs, kOffloadActivations, kNotBuilt, "the host takes part in the step",
     "no --offload-activations"},
    {kReproducible, kGradBf16, kMathematics, "rounded sums depend on the number of ranks",
     "--grad-dtype fp32"},
    {kOffload, kAdafactor, kNotBuilt,
     "its states are tiny, and its statistics are reduced over ranks", "--offload none"},
    {kOffload, kLamb, kNotBuilt, "its norms are reduced over ranks before the CPU could step",
     "--offload none"},
    {kOneBitAdam, kReproducible, kMathematics, "averages over replicas depend on their number",
     "one of the two"},
    {kOneBitAdam, kSkipOutliers, kMathematics, "replicas have different gradient norms",
     "--skip-outliers 0"},
    {kOneBitAdam, kGraphs, kNotBuilt,
     "a captured step always reduces gradients, but not all of its steps do", "no --cuda-graph"},
    {kOneBitAdam, kOffload, kNotBuilt, "its momenta are exchanged on the device", "--offload none"},
    {kOneBitAdam, kOuter, kMathematics, "both decide when replicas communicate", "one of the two"},
    {kOuter, kReproducible, kMathematics, "averages over replicas depend on their number",
     "one of the two"},
    {kOuter, kSkipOutliers, kMathematics, "replicas have different gradient norms",
     "--skip-outliers 0"},
    {kOuter, kGraphs, kNotBuilt,
     "a captured step always reduces gradients, but not all of its steps do", "no --cuda-graph"},
    {kOuter, kAdamW8bit, kNotBuilt,
     "resuming on other ranks averages states, and quantized ones have no average",
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
