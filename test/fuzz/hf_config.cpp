#include "shale/models/gpt2/hf.h"
#include "shale/test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  HfGpt2Config config;
  const auto parse = [&] { config = parse_gpt2_config(fuzz::text_of(data, size), "config.json"); };
  if (!fuzz::accepts<DataError>(parse)) return 0;
  fuzz::require(config.heads > 0 && config.width % config.heads == 0, "heads divide the width");
  fuzz::require(config.layers > 0 && config.layers <= 10'000, "layers are bounded");
  fuzz::require(config.end_token >= 0 && config.end_token < config.vocab, "the end is a token");
  fuzz::require(static_cast<float>(config.layer_norm_eps) > 0, "epsilon is above 0 as a float");
  config.layers = 1;  // the others are the same
  for (const Gpt2Tensor& tensor : gpt2_tensors(config)) {
    int64_t elements = 1;
    for (const int64_t n : tensor.shape) {
      fuzz::require(n > 0 && !__builtin_mul_overflow(elements, n, &elements),
                    "no product of sizes overflows");
    }
  }
  return 0;
}
