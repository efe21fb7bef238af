#include "shale/models/gpt2/hf.h"
#include "shale/models/llama/hf.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

void require_sizes(const std::vector<models::HfTensor>& tensors) {
  for (const models::HfTensor& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t n : tensor.shape) {
      fuzz::require(n > 0 && !__builtin_mul_overflow(elements, n, &elements),
                    "no product of sizes overflows");
    }
  }
}

void try_gpt2(std::string_view text) {
  HfGpt2Config config;
  const auto parse = [&] { config = parse_gpt2_config(text, "config.json"); };
  if (!fuzz::accepts<DataError>(parse)) return;
  fuzz::require(config.heads > 0 && config.width % config.heads == 0, "heads divide the width");
  fuzz::require(config.layers > 0 && config.layers <= 10'000, "layers are bounded");
  const int64_t end = config.end_token.value_or(0);
  fuzz::require(end >= 0 && end < config.vocab, "the end is a token");
  fuzz::require(static_cast<float>(config.layer_norm_eps) > 0, "epsilon is above 0 as a float");
  config.layers = 1;  // all layers are equal, so one is enough
  require_sizes(gpt2_tensors(config));
}

void try_llama(std::string_view text) {
  models::LanguageModelConfig config;
  const auto parse = [&] { config = models::parse_llama_config(text, "config.json"); };
  if (!fuzz::accepts<DataError>(parse)) return;
  fuzz::require(config.kv_heads > 0 && config.heads % config.kv_heads == 0, "kv heads divide");
  fuzz::require(config.head_size % 2 == 0, "a head has pairs");
  fuzz::require(config.layers > 0 && config.layers <= 10'000, "layers are bounded");
  fuzz::require(config.norm_eps > 0, "epsilon is above 0 as a float");
  const std::string written = models::llama_config_json(config, DType::kF32);
  const models::LanguageModelConfig again = models::parse_llama_config(written, "written");
  fuzz::require(again.rope == config.rope && again.norm_eps == config.norm_eps &&
                    again.head_size == config.head_size,
                "what is written is read again");
  config.layers = 1;
  require_sizes(models::llama_tensors(config));
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = shale::fuzz::text_of(data, size);
  shale::try_gpt2(text);
  shale::try_llama(text);
  return 0;
}
