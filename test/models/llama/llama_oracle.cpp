// Compares Llama and its relatives with transformers, from folders that transformers wrote: logits,
// loss, the gradient of every parameter, and 20 steps of AdamW. The numbers were computed in f64 by
// test/fixtures/make_llama.py, which explains every key at its top.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/language/stored_model.h"
#include "shale/models/training/step.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/llama_fixture.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

const char* const kCases[] = {"llama_tied",   "llama_untied_llama3",
                              "llama_yarn",   "llama_softcap",
                              "mistral",      "qwen2",
                              "qwen2_window", "qwen3",
                              "olmo2",        "mixtral",
                              "olmoe",        "qwen3_moe"};

// A model with a fixture's weights on one rank.
struct Loaded {
  explicit Loaded(const LlamaFixture& fixture, DType compute = DType::kF32)
      : context(small_context()),
        model(models::make_language_model(fixture.config(), fixture.policy())),
        parallel(*model, model->blocks(), context, *group, {.compute = compute}) {
    models::load_stored_model(*fixture.stored, parallel);
  }
  Tensor tokens(const LlamaFixture& fixture, int64_t first, int64_t last) {
    return from_host<int32_t>(context, fixture.columns(fixture.expected["ids"], first, last),
                              {fixture.rows, last - first});
  }

  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context;
  std::unique_ptr<models::LanguageModel> model;
  comm::DataParallel parallel;
};

void check_last_logits(const LlamaFixture& fixture, const Tensor& logits) {
  const DType dtype = logits.dtype();
  const std::vector<float> found = to_host<float>(cast(logits, DType::kF32));
  const int64_t vocab = fixture.stored->config().vocab;
  REQUIRE(logits.shape() == Shape{fixture.rows, fixture.stored->config().padded_vocab});
  double worst = 0;
  for (int64_t row = 0; row < fixture.rows; ++row) {
    for (int64_t token = 0; token < vocab; ++token) {
      const double want = fixture.expected["last_logits"][size_t(row)][size_t(token)].real();
      worst = std::max(worst, std::abs(found[size_t(row * logits.size(1) + token)] - want));
    }
  }
  CHECK(worst <= fixture.allowed("logit", dtype));
}

// Reads expected gradients like a model's weights, because the files have the same tensors.
std::unique_ptr<models::StoredModel> stored_gradients(const LlamaFixture& fixture,
                                                      const TempDir& folder) {
  namespace fs = std::filesystem;
  fs::copy_file(fixture.folder + "/config.json", folder.file("config.json"));
  fs::copy_file(fixture.folder + "/gradients.safetensors", folder.file("model.safetensors"));
  return models::open_stored_model(folder.path());
}

void check_gradient(const LlamaFixture& fixture, const Parameter& parameter,
                    const models::StoredModel& gradients, DType dtype) {
  CAPTURE(parameter.full_name());
  const std::vector<float> grad = to_host<float>(cast(parameter.value.grad(), DType::kF32));
  std::vector<float> want(grad.size());
  gradients.read(parameter.full_name(), make_view(want.data(), parameter.shape), 0);
  double difference = 0, norm = 0, worst = 0, largest = 0;
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = want[i], d = grad[i] - g;
    difference += d * d, norm += g * g;
    worst = std::max(worst, std::abs(d)), largest = std::max(largest, std::abs(g));
  }
  CHECK(largest > 0);
  CHECK(std::sqrt(difference / norm) <= fixture.allowed("grad_l2", dtype));
  // Gradients of rows that pad the vocabulary are 0.
  CHECK(worst <= fixture.allowed("grad_element", dtype) * largest);
}

}  // namespace

TEST_CASE("logits of models that transformers wrote are its own, in one go and token by token") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const char* name : kCases) {
    CAPTURE(name, dtype_name(dtype));
    const LlamaFixture fixture(name);
    Loaded run(fixture, dtype);
    models::KvCache whole, cached;
    check_last_logits(fixture,
                      run.model->next_logits(run.tokens(fixture, 0, fixture.length), whole));
    run.model->next_logits(run.tokens(fixture, 0, fixture.length - 3), cached);
    for (int64_t t = fixture.length - 3; t < fixture.length - 1; ++t) {
      run.model->next_logits(run.tokens(fixture, t, t + 1), cached);
    }
    check_last_logits(
        fixture,
        run.model->next_logits(run.tokens(fixture, fixture.length - 1, fixture.length), cached));
  }
}

TEST_CASE("loss and gradients of models that transformers wrote are its own, in f32 and bf16") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const char* name : kCases) {
    CAPTURE(name, dtype_name(dtype));
    const LlamaFixture fixture(name);
    Loaded run(fixture, dtype);
    run.context.update_step([](StepState& s) { s.grad_scale = 1; });
    const Tensor loss = run.model->loss(run.tokens(fixture, 0, fixture.length),
                                        run.tokens(fixture, 1, fixture.length + 1));
    run.parallel.begin_backward(true);
    backward(loss);
    run.parallel.finish_gradients();
    CHECK(std::abs(to_host<float>(loss).front() / fixture.expected["loss"].get<double>() - 1) <=
          fixture.allowed("loss", dtype));
    // Where two experts have nearly equal scores, rounding may choose the other one, which changes
    // gradients.
    if (dtype == DType::kBF16 && fixture.expected.contains("router")) continue;
    const TempDir folder;
    const auto gradients = stored_gradients(fixture, folder);
    for (const Parameter* parameter : run.model->parameters()) {
      check_gradient(fixture, *parameter, *gradients, dtype);
    }
  }
}

TEST_CASE("20 steps of AdamW from weights of transformers go as torch's, in f32 and bf16") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const char* name : kCases) {
    CAPTURE(name, dtype_name(dtype));
    const LlamaFixture fixture(name);
    const Json& adamw = fixture.expected["adamw"];
    const Json& train = fixture.expected["train"];
    const double tokens = double(fixture.rows * fixture.length);
    comm::World world(0, nullptr);
    Context context(small_context());
    const auto group = world.group();
    const auto model = models::make_language_model(fixture.config(), fixture.policy());
    StepOutcomes outcomes;
    models::TrainStep step(context, {.shard = group.get()}, step_model(*model),
                           {.parallel = {.compute = dtype}, .clip = adamw["clip"].get<float>()},
                           adamw_of(fixture), &outcomes);
    models::load_stored_model(*fixture.stored, step.parallel());
    Batch batch;
    for (size_t i = 0; i < train["ids"].size(); ++i) {
      batch = fixture.train_batch(i);
      step.run({.step = int64_t(i),
                .lr = adamw["lr"].get<float>(),
                .weight = tokens,
                .next_batch = [&]() -> const Batch& { return batch; }});
    }
    step.finish();
    REQUIRE(outcomes.losses.size() == train["loss"].size());
    for (size_t i = 0; i < outcomes.losses.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(outcomes.losses[i] / tokens / train["loss"][i].get<double>() - 1) <=
            fixture.allowed("train_loss", dtype));
      CHECK(std::abs(outcomes.norms[i] / train["grad_norm"][i].get<double>() - 1) <=
            fixture.allowed("train_norm", dtype));
    }
  }
}

}  // namespace shale::test
