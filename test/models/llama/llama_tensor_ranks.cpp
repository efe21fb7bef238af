// Llama and its relatives whose layers ranks share, against torch in f64: the numbers that one rank
// is held to in llama_oracle.cpp.
#include "shale/comm/parallel/tensor/tensor_parallel.h"
#include "shale/models/language/stored_model.h"
#include "shale/test/support/llama_fixture.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"
#include "shale/test/support/training.h"

namespace shale::test {

TEST_CASE("20 steps of AdamW on tensor ranks go as torch's on one", "[tensor]") {
  const auto group = world().group();
  if (group->size() != 2) return;  // the fixtures have two heads of keys and values
  for (const char* name : {"llama_tied", "llama_untied_llama3", "qwen2_window", "qwen3"}) {
    CAPTURE(name);
    const LlamaFixture fixture(name);
    const auto& train = fixture.expected["train"];
    const double tokens = double(fixture.rows * fixture.length);
    Context context(small_context());
    const models::LanguageModelConfig config = fixture.stored->config();
    const auto model = models::make_language_model(config, fixture.policy());
    const auto exchange = comm::tensor_parallel(
        *model, models::model_family(config.family).tensor_plan(config), *group);
    StepOutcomes outcomes;
    models::TrainStep step(context, {.shard = &alone(), .tensor = group.get()}, step_model(*model),
                           {.clip = fixture.expected["adamw"]["clip"]}, adamw_of(fixture),
                           &outcomes);
    models::load_stored_model(*fixture.stored, step.parallel());
    Batch batch;
    for (size_t i = 0; i < train["ids"].size(); ++i) {
      batch = fixture.train_batch(i);
      step.run({.step = int64_t(i),
                .lr = fixture.expected["adamw"]["lr"],
                .weight = tokens,
                .next_batch = [&]() -> const Batch& { return batch; }});
    }
    step.finish();
    REQUIRE(outcomes.losses.size() == train["loss"].size());
    for (size_t i = 0; i < outcomes.losses.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(outcomes.losses[i] / tokens / train["loss"][i].get<double>() - 1) <=
            fixture.allowed("train_loss"));
      CHECK(std::abs(outcomes.norms[i] / train["grad_norm"][i].get<double>() - 1) <=
            fixture.allowed("train_norm"));
    }
  }
}

}  // namespace shale::test
