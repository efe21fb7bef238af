// Tests a family of language models that is defined only here.
#include "shale/models/language/family.h"

#include "shale/base/error.h"
#include "shale/models/language/stored_model.h"
#include "shale/models/language/task.h"
#include "shale/models/training/trainer.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::message_of;
using test::TempDir;

// Predicts the next token from the last one alone, by a table and one linear layer per block.
class Bigram : public LanguageModel {
 public:
  Bigram(const LanguageModelConfig& config, const LanguageModelPolicy& policy)
      : LanguageModel(config, policy),
        table_(this, "table", config.padded_vocab, config.width, Init::normal(0.02f)),
        head_(this, "head", config.width, config.padded_vocab, Init::normal(0.02f), nn::Bias::kNo) {
    for (int64_t i = 0; i < config.layers; ++i) {
      layers_.push_back(std::make_unique<nn::Linear>(this, cat("layers.", i), config.width,
                                                     config.width, Init::normal(0.02f)));
    }
  }
  std::vector<Module*> blocks() override {
    std::vector<Module*> blocks;
    for (const auto& layer : layers_) blocks.push_back(layer.get());
    return blocks;
  }
  Tensor loss(const Tensor& input, const Tensor& targets, const Documents&) override {
    return run(input, [this, targets](const Tensor& ids) {
      return linear_cross_entropy(reshape(states(ids), {-1, config().width}), head_.weight.value,
                                  reshape(targets, {-1}), config().vocab);
    });
  }
  Tensor next_logits(const Tensor& input, KvCache& cache, const Documents&) override {
    const Inference inference(input.context());
    cache.length += input.size(1);
    return run(input, [this](const Tensor& ids) {
      const int64_t B = ids.size(0), T = ids.size(1);
      const Tensor last = contiguous(slice(states(ids), 1, T - 1, T));
      return reshape(linear(last, head_.weight.value), {B, config().padded_vocab});
    });
  }

 private:
  Tensor states(const Tensor& ids) {
    Tensor x = embedding(ids, table_.weight.value, {});
    for (const auto& layer : layers_) x = layer->forward(x, x);
    return x;
  }

  nn::Embedding table_;
  nn::Linear head_;
  std::vector<std::unique_ptr<nn::Linear>> layers_;
};

class BigramFamily : public ModelFamily {
 public:
  std::string name() const override { return "bigram"; }
  std::vector<ModelPreset> presets() const override {
    return {{.name = "bigram-tiny",
             .config = {.family = "bigram", .layers = 2, .width = 16, .heads = 1, .context = 0},
             .lr = 1e-2,
             .byte_vocab = true}};
  }
  std::unique_ptr<LanguageModel> make(const LanguageModelConfig& config,
                                      const LanguageModelPolicy& policy) const override {
    return std::make_unique<Bigram>(config, policy);
  }
  std::map<std::string, std::string> shape(const LanguageModelConfig& config) const override {
    return {{"layers", cat(config.layers)}, {"width", cat(config.width)}};
  }
  LanguageModelConfig parse_shape(const JsonObject& shape) const override {
    LanguageModelConfig config{.family = "bigram", .heads = 1};
    config.layers = shape.integer("layers");
    config.width = shape.integer("width");
    return config;
  }
};

const BigramFamily& bigram() {
  static const BigramFamily family;
  static const bool added = (add_model_family(family), true);
  static_cast<void>(added);
  return family;
}

}  // namespace

TEST_CASE("a family that is added has presets, shapes and models by its names", "[models]") {
  const ModelFamily& family = bigram();
  CHECK(&model_family("bigram") == &family);
  CHECK(contains(message_of<ConfigError>([] { find_preset("trigram"); }),
                 "qwen3-30b-a3b bigram-tiny"));
  const LanguageModelConfig config = preset("bigram-tiny", 32);
  CHECK(config.context == 32);
  CHECK(model_shape_json(config) == R"({"family":"bigram","layers":2,"width":16})");
  CHECK(parse_model_shape(model_shape_json(config), "x").family == "bigram");
  CHECK(make_language_model(config)->blocks().size() == 2);
  CHECK(contains(message_of<DataError>([] { parse_model_shape(R"({"family":"x"})", "shape"); }),
                 "qwen3_moe, bigram"));
}

TEST_CASE("a family or preset that is there is not added again", "[models]") {
  CHECK(contains(message_of<ConfigError>([] { add_model_family(bigram()); }),
                 "family bigram is already registered"));
  class Again : public BigramFamily {
    std::string name() const override { return "bigram2"; }
  };
  static const Again again;
  CHECK(contains(message_of<ConfigError>([] { add_model_family(again); }),
                 "preset bigram-tiny is already registered"));
}

TEST_CASE("the trainer trains a family that it does not know", "[models]") {
  bigram();
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "ab";
  TrainConfig config;
  ConfigSpec spec("test", "");
  describe(spec, config);
  config.language.source.data = dir.write("text.txt", text);
  config.language.model = "bigram-tiny";
  config.language.seq_len = 16;
  config.run.steps = 60;
  config.run.device = "cpu";
  config.run.eval_every = 60;
  config.run.out = dir.file("out");
  config.run.quiet = true;
  comm::World world(0, nullptr);
  resolve(config, world.size());
  LanguageTask task(config);
  CHECK(Trainer(config.run, spec, task, world).run() == ExitCode::kOk);
  const auto rows = read_metrics(dir.file("out/metrics.jsonl"));
  REQUIRE(rows.size() == 61);
  const auto first = std::get<StepMetrics>(rows.front()).loss;
  const EvalMetrics& evaluation = std::get<EvalMetrics>(rows.back());
  const float last = evaluation.val_loss;
  REQUIRE(evaluation.items.has_value());
  CHECK(*evaluation.items % 16 == 0);  // whole sequences without padding
  CHECK(*evaluation.items <= 800);     // a tenth of the text
  CHECK(*evaluation.items >= 800 - 16);
  CHECK(first > 5.4f);  // a new model's loss is about log(256) = 5.5
  CHECK(last < 0.2f);   // the text alternates a and b, which is easy to learn

  SECTION("what it cannot do is an error that says so") {
    config.language.export_dir = dir.file("hf");
    config.run.resume = "auto";
    LanguageTask exporting(config);
    CHECK(contains(
        message_of<ConfigError>([&] { Trainer(config.run, spec, exporting, world).run(); }),
        "bigram models have no Hugging Face format"));
  }
}

}  // namespace shale::models
