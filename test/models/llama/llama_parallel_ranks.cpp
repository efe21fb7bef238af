// Compares Llama and its relatives under tensor, pipeline and context parallelism with torch's f64
// results on one rank, by the limits of llama_oracle.cpp.
#include "shale/models/language/stored_model.h"
#include "shale/test/support/llama_fixture.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {

TEST_CASE("20 steps of AdamW on ranks that share a model go as torch's on one",
          "[tensor][pipeline][context]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4) return;  // the fixtures have two KV heads
  for (const char* name : {"llama_tied", "llama_untied_llama3", "qwen2_window", "qwen3"}) {
    const LlamaFixture fixture(name);
    const auto& train = fixture.expected["train"];
    TrainOptions options{.steps = int64_t(train["ids"].size()),
                         .clip = fixture.expected["adamw"]["clip"].get<float>(),
                         .optimizer = adamw_of(fixture),
                         .length = fixture.length};
    for (PipelineRun run :
         {PipelineRun{.tensor = 2}, PipelineRun{.context = 2}, PipelineRun{.ranks = 2},
          PipelineRun{.ranks = 2, .tensor = 2}, PipelineRun{.tensor = 2, .context = 2},
          PipelineRun{.ranks = 2, .context = 2}}) {
      if (run.ranks * run.tensor * run.context != ranks) continue;
      CAPTURE(name, run.ranks, run.context, run.tensor);
      run.micro_batches = fixture.rows;
      run.lr = fixture.expected["adamw"]["lr"].get<float>();
      run.load = [&](comm::DataParallel& parallel) {
        models::load_stored_model(*fixture.stored, parallel);
      };
      run.batch = [&](int64_t step, int64_t row) { return fixture.train_row(size_t(step), row); };
      const Trained got = train_pipeline(*all, fixture.stored->config(), run, options);
      REQUIRE(got.losses.size() == train["loss"].size());
      for (size_t i = 0; i < got.losses.size(); ++i) {
        CAPTURE(i);
        CHECK(std::abs(got.losses[i] / train["loss"][i].get<double>() - 1) <=
              fixture.allowed("train_loss"));
        CHECK(std::abs(got.norms[i] / train["grad_norm"][i].get<double>() - 1) <=
              fixture.allowed("train_norm"));
      }
    }
  }
}

}  // namespace shale::test
