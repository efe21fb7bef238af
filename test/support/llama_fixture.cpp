#include "shale/test/support/llama_fixture.h"

#include <algorithm>

#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/training.h"

namespace shale::test {

LlamaFixture::LlamaFixture(const std::string& name)
    : folder(fixture_path("llama/" + name)), stored(models::open_stored_model(folder)) {
  expected = json_file(folder + "/expected.json");
  rows = int64_t(expected["ids"].size());
  length = int64_t(expected["ids"][0].size()) - 1;
}

std::vector<int32_t> LlamaFixture::columns(const Json& ids, int64_t first, int64_t last) const {
  std::vector<int32_t> tokens;
  for (const Json& row : ids) {
    for (int64_t t = first; t < last; ++t) tokens.push_back(row[size_t(t)].get<int32_t>());
  }
  return tokens;
}

Batch LlamaFixture::train_batch(size_t step) const {
  return token_batch(columns(expected["train"]["ids"][step], 0, length + 1), rows, length);
}

Batch LlamaFixture::train_row(size_t step, int64_t row) const {
  const Json one = Json::array({expected["train"]["ids"][step][size_t(row)]});
  return token_batch(columns(one, 0, length + 1), 1, length);
}

double LlamaFixture::allowed(const char* key, DType dtype) const {
  const bool low = dtype == DType::kBF16;
  const double torch = expected[low ? "bf16_deviation" : "f32_deviation"][key].real();
  return low ? std::max(0x1p-9, 4 * torch) : std::max(1e-6, 8 * torch);
}

models::LanguageModelConfig LlamaFixture::config() const {
  models::LanguageModelConfig config = stored->config();
  if (expected.contains("softcap")) {
    config.attention_softcap = expected["softcap"]["attention"].get<float>();
    config.logit_softcap = expected["softcap"]["logits"].get<float>();
  }
  return config;
}

models::LanguageModelPolicy LlamaFixture::policy() const {
  if (!expected.contains("router")) return {};
  return {.balance_loss = expected["router"]["balance_loss"].get<float>(),
          .router_z_loss = expected["router"]["z_loss"].get<float>()};
}

models::MakeOptimizer adamw_of(const LlamaFixture& fixture) {
  const Json& adamw = fixture.expected["adamw"];
  const optim::AdamWOptions options{.beta1 = adamw["beta1"].get<float>(),
                                    .beta2 = adamw["beta2"].get<float>(),
                                    .eps = adamw["eps"].get<float>(),
                                    .weight_decay = adamw["weight_decay"].get<float>()};
  return [options](std::vector<OptimShard> shards) {
    return std::make_unique<optim::AdamW>(std::move(shards), options);
  };
}

}  // namespace shale::test
