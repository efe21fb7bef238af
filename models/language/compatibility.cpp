#include "shale/models/language/compatibility.h"

#include <array>

#include "shale/runtime/nn/frozen.h"

namespace shale::models {
namespace {

using Use = OptionUse<TrainConfig>;
using enum Why;

// Makes an OptionUse::text for a TrainConfig from one for its member kPart, such as above() for
// RunConfig.
template <auto kPart, auto kUse>
std::string of(const TrainConfig& c, const char* flag) {
  return kUse(c.*kPart, flag);
}
constexpr auto kRun = &TrainConfig::run;
constexpr auto kLanguage = &TrainConfig::language;

constexpr Use kTensor = {"--tensor", of<kRun, above<&RunConfig::tensor, 1>>};
constexpr Use kContext = {"--context", of<kRun, above<&RunConfig::context, 1>>};
constexpr Use kPipeline = {"--pipeline", of<kRun, above<&RunConfig::pipeline, 1>>};
constexpr Use kGraphs = {"--cuda-graph", of<kRun, is_set<&RunConfig::cuda_graph>>};
constexpr Use kRing = {"--context-kind ring, ulysses+ring", [](const TrainConfig& c, const char*) {
                         const comm::ContextKind kind = c.run.context_kind;
                         if (kind == comm::ContextKind::kRing)
                           return option_text(true, "--context-kind ring");
                         return option_text(kind == comm::ContextKind::kUlyssesRing,
                                            "--context-kind ulysses+ring");
                       }};
constexpr Use kFrozenCodes = {"--frozen-dtype int8, nf4", [](const TrainConfig& c, const char*) {
                                const LoraConfig& lora = c.language.lora;
                                return option_text(
                                    lora.is_on() && nn::code_of(lora.frozen).has_value(),
                                    "--frozen-dtype", nn::frozen_dtype_name(lora.frozen));
                              }};
constexpr Use kLoraDropout = {"--lora-dropout", [](const TrainConfig& c, const char* flag) {
                                const LoraConfig& lora = c.language.lora;
                                return option_text(lora.is_on() && lora.dropout > 0, flag,
                                                   lora.dropout);
                              }};
constexpr Use kDpo = {"--task dpo", [](const TrainConfig& c, const char* name) {
                        return option_text(c.language.source.objective == Objective::kDpo, name);
                      }};
constexpr Use kLossChunk = {"--loss-chunk", of<kLanguage, above<&LanguageConfig::loss_chunk, 0>>};
constexpr Use kPattern = {"--attention-pattern",
                          of<kLanguage, is_given<&LanguageConfig::attention_pattern>>};
constexpr Use kSamples = {"--sample-tokens",
                          of<kLanguage, above<&LanguageConfig::sample_tokens, 0>>};

constexpr const char* kGenerate = "`shale generate` with what --export writes";

constexpr auto kTable = std::to_array<Incompatible<TrainConfig>>({
    {kFrozenCodes, kTensor, kNotBuilt, "quantized weights cannot be split",
     "--frozen-dtype bf16, or --zero 3 in place of --tensor"},
    {kLoraDropout, kTensor, kNotBuilt, "dropout masks would depend on the ranks",
     "--lora-dropout 0"},
    {kLoraDropout, kContext, kNotBuilt, "dropout masks would depend on the ranks",
     "--lora-dropout 0"},
    {kDpo, kPipeline, kNotBuilt, "the loss of a pair needs the losses of both sequences",
     "--pipeline 1"},
    {kDpo, kContext, kNotBuilt, "the loss of a pair needs the losses of both sequences",
     "--context 1"},
    {kDpo, kTensor, kNotBuilt, "the loss of each token is needed", "--tensor 1"},
    {kDpo, kLossChunk, kNotBuilt, "the loss of each token is needed", "--loss-chunk 0"},
    {kPattern, kGraphs, kNotBuilt, "each call copies its lists of blocks", "one of them"},
    {kPattern, kRing, kNotBuilt, "ring attention does not support patterns",
     "--context-kind gather or ulysses"},
    {kSamples, kPipeline, kNotBuilt, "sampling needs the whole model on one rank", kGenerate},
    {kSamples, kTensor, kNotBuilt, "sampling needs the whole model on one rank", kGenerate},
    {kSamples, kContext, kNotBuilt, "sampling needs the whole model on one rank", kGenerate},
});

}  // namespace

std::span<const Incompatible<TrainConfig>> incompatible_language_options() {
  return kTable;
}

}  // namespace shale::models
