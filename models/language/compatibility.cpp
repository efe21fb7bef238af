#include "shale/models/language/compatibility.h"

#include <array>

#include "shale/base/parse.h"
#include "shale/runtime/nn/frozen.h"

namespace shale::models {
namespace {

using Use = OptionUse<TrainConfig>;
using enum Why;

constexpr Use kTensor = {"--tensor", [](const TrainConfig& c) {
                           return option_text(c.run.tensor > 1, "--tensor", c.run.tensor);
                         }};
constexpr Use kContext = {"--context", [](const TrainConfig& c) {
                            return option_text(c.run.context > 1, "--context", c.run.context);
                          }};
constexpr Use kPipeline = {"--pipeline", [](const TrainConfig& c) {
                             return option_text(c.run.pipeline > 1, "--pipeline", c.run.pipeline);
                           }};
constexpr Use kGraphs = {"--cuda-graph", [](const TrainConfig& c) {
                           return option_text(c.run.cuda_graph, "--cuda-graph");
                         }};
constexpr Use kRing = {"--context-kind ring, ulysses+ring", [](const TrainConfig& c) {
                         const comm::ContextKind kind = c.run.context_kind;
                         if (kind == comm::ContextKind::kRing)
                           return option_text(true, "--context-kind ring");
                         return option_text(kind == comm::ContextKind::kUlyssesRing,
                                            "--context-kind ulysses+ring");
                       }};
constexpr Use kFrozenCodes = {"--frozen-dtype int8, nf4", [](const TrainConfig& c) {
                                const LoraConfig& lora = c.language.lora;
                                return option_text(
                                    lora.is_on() && nn::code_of(lora.frozen).has_value(),
                                    "--frozen-dtype", nn::frozen_dtype_name(lora.frozen));
                              }};
constexpr Use kLoraDropout = {"--lora-dropout", [](const TrainConfig& c) {
                                const LoraConfig& lora = c.language.lora;
                                return option_text(lora.is_on() && lora.dropout > 0,
                                                   "--lora-dropout", lora.dropout);
                              }};
constexpr Use kDpo = {"--task dpo", [](const TrainConfig& c) {
                        return option_text(c.language.source.objective == Objective::kDpo,
                                           "--task dpo");
                      }};
constexpr Use kLossChunk = {"--loss-chunk", [](const TrainConfig& c) {
                              return option_text(c.language.loss_chunk > 0, "--loss-chunk",
                                                 c.language.loss_chunk);
                            }};
constexpr Use kPattern = {"--attention-pattern", [](const TrainConfig& c) {
                            return option_text(!c.language.attention_pattern.empty(),
                                               "--attention-pattern", c.language.attention_pattern);
                          }};
constexpr Use kSamples = {"--sample-tokens", [](const TrainConfig& c) {
                            return option_text(c.language.sample_tokens > 0, "--sample-tokens",
                                               c.language.sample_tokens);
                          }};

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
