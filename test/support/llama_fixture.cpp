#include "shale/test/support/llama_fixture.h"

#include <algorithm>
#include <fstream>

#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/training.h"

namespace shale::test {

using nlohmann::json;

LlamaFixture::LlamaFixture(const std::string& name)
    : folder(fixture_path("llama/" + name)), stored(models::open_stored_model(folder)) {
  std::ifstream file(folder + "/expected.json");
  REQUIRE(file.good());
  expected = json::parse(file);
  rows = int64_t(expected["ids"].size());
  length = int64_t(expected["ids"][0].size()) - 1;
}

std::vector<int32_t> LlamaFixture::columns(const json& ids, int64_t first, int64_t last) const {
  std::vector<int32_t> tokens;
  for (const json& row : ids) {
    for (int64_t t = first; t < last; ++t) tokens.push_back(row[size_t(t)]);
  }
  return tokens;
}

Batch LlamaFixture::train_batch(size_t step) const {
  return token_batch(columns(expected["train"]["ids"][step], 0, length + 1), rows, length);
}

Batch LlamaFixture::train_row(size_t step, int64_t row) const {
  const json one = json::array({expected["train"]["ids"][step][size_t(row)]});
  return token_batch(columns(one, 0, length + 1), 1, length);
}

double LlamaFixture::allowed(const char* key) const {
  return std::max(1e-6, 8 * expected["f32_deviation"][key].get<double>());
}

models::LanguageModelPolicy LlamaFixture::policy() const {
  if (!expected.contains("router")) return {};
  return {.balance_loss = expected["router"]["balance_loss"],
          .router_z_loss = expected["router"]["z_loss"]};
}

models::MakeOptimizer adamw_of(const LlamaFixture& fixture) {
  const json& adamw = fixture.expected["adamw"];
  const optim::AdamWOptions options{.beta1 = adamw["beta1"],
                                    .beta2 = adamw["beta2"],
                                    .eps = adamw["eps"],
                                    .weight_decay = adamw["weight_decay"]};
  return [options](std::vector<OptimShard> shards) {
    return std::make_unique<optim::AdamW>(std::move(shards), options);
  };
}

}  // namespace shale::test
