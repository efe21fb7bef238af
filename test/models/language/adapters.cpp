// Compares adapters with PEFT, and preference losses with TRL's formula. The numbers were computed
// in f64 by test/fixtures/make_lora.py, which explains every key at its top.
#include "shale/models/language/adapters.h"

#include <cmath>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/stored_model.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// A transformers model with a fixture's adapters on one rank.
struct Adapted {
  explicit Adapted(const std::string& name, Recompute recompute = Recompute::kNone, int stage = 0)
      : folder(fixture_path("lora/" + name)),
        expected(json_file(folder + "/expected.json")),
        stored(models::open_stored_model(fixture_path(expected["base"].text()))),
        context(small_context()),
        shape(models::read_adapter_shape(folder)),
        model(models::make_language_model(stored->config())),
        layers(nn::add_adapters(*model, shape.options, shape.targets)) {
    for (Module* block : model->blocks()) block->set_recompute(recompute);
    parallel.emplace(*model, model->blocks(), context, *group,
                     comm::DataParallelOptions{.stage = stage});
    const models::StoredAdapters adapters(folder, models::model_family(stored->config().family),
                                          layers);
    models::load_stored_model(*stored, *parallel, &adapters);
    rows = int64_t(expected["ids"].size());
    length = int64_t(expected["ids"][0].size()) - 1;
  }
  Tensor columns(int64_t first, int64_t last) {
    std::vector<int32_t> ids;
    for (const Json& row : expected["ids"]) {
      for (int64_t t = first; t < last; ++t) ids.push_back(row[size_t(t)].get<int32_t>());
    }
    return from_host<int32_t>(context, ids, {rows, last - first});
  }
  Tensor inputs() { return columns(0, length); }
  Tensor targets() { return columns(1, length + 1); }

  std::string folder;
  Json expected;
  std::unique_ptr<models::StoredModel> stored;
  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context;
  models::AdapterShape shape;
  std::unique_ptr<models::LanguageModel> model;
  std::vector<nn::LinearWeights*> layers;
  std::optional<comm::DataParallel> parallel;
  int64_t rows = 0, length = 0;
};

// Limit of deviations: that of llama_oracle.cpp, because sums of several dozen f32 products deviate
// about as far.
constexpr double kAllowed = 1e-5;

void check_logits(const Adapted& run, const Tensor& logits) {
  const std::vector<float> found = to_host<float>(logits);
  for (int64_t row = 0; row < run.rows; ++row) {
    const Json& want = run.expected["last_logits"][size_t(row)];
    for (size_t token = 0; token < want.size(); ++token) {
      const double value = found[size_t(row * logits.size(1)) + token];
      REQUIRE(std::abs(value - want[token].get<double>()) <= kAllowed * 10);
    }
  }
}

// If the weight has an adapter, adds the adapter's product to `rows`, which begin at row
// `first_row`.
void merge_rows(const Adapted& run, const std::string& name, int64_t first_row, const View& rows) {
  const Parameter* const weight = run.model->find_parameter(name);
  const auto* const layer = dynamic_cast<const nn::LinearWeights*>(weight->owner);
  if (layer == nullptr || layer->adapter() == nullptr || &layer->weight != weight) return;
  std::vector<float> a = to_host<float>(layer->adapter()->a.weight.value);
  std::vector<float> b = to_host<float>(layer->adapter()->b.weight.value);
  const int64_t rank = run.shape.options.rank;
  nn::merge_adapter(rows, make_view(a.data(), {rank, rows.size(1)}),
                    make_view(b.data() + first_row * rank, {rows.size(0), rank}),
                    run.shape.options.scale());
}

}  // namespace

TEST_CASE("adapters that PEFT wrote give its losses, logits and gradients") {
  for (const char* name : {"llama_tied", "qwen2"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      CAPTURE(name, int(recompute));
      Adapted run(name, recompute);
      run.context.update_step([](StepState& s) { s.grad_scale = 1; });
      const Tensor loss = run.model->loss(run.inputs(), run.targets());
      run.parallel->begin_backward(true);
      backward(loss);
      run.parallel->finish_gradients();
      const double want = run.expected["loss"].real();
      CHECK(std::abs(to_host<float>(loss)[0] / want - 1) <= kAllowed);
      const SafetensorsFile gradients(run.folder + "/gradients.safetensors");
      const auto& family = models::model_family(run.stored->config().family);
      size_t seen = 0;
      for (const Parameter* parameter : run.model->parameters()) {
        CAPTURE(parameter->full_name());
        REQUIRE(parameter->trainable == nn::is_of_adapter(*parameter));
        if (!parameter->trainable) {
          CHECK_FALSE(parameter->value.grad().defined());
          continue;
        }
        const auto* entry =
            gradients.find("base_model.model." + family.hf_name(parameter->full_name()));
        REQUIRE(entry != nullptr);
        const float* expected = gradients.view(*entry).as<float>();
        const std::vector<float> grad = to_host<float>(parameter->value.grad());
        double difference = 0, norm = 0;
        for (size_t i = 0; i < grad.size(); ++i) {
          difference += std::pow(double(grad[i]) - expected[i], 2);
          norm += std::pow(double(expected[i]), 2);
        }
        CHECK(std::sqrt(difference / norm) <= kAllowed);
        ++seen;
      }
      CHECK(seen == gradients.entries().size());
      models::KvCache cache;
      check_logits(run, run.model->next_logits(run.inputs(), cache));
    }
  }
}

TEST_CASE("losses of tokens add up to the loss, and are PEFT's, as are preferences TRL's") {
  Adapted run("qwen2");
  const Tensor each = run.model->token_losses(run.inputs(), run.targets());
  REQUIRE(each.shape() == Shape{run.rows * run.length});
  const std::vector<float> sums =
      to_host<float>(sum(reshape(each, {run.rows, run.length}), std::vector<int>{1}));
  CHECK(std::abs((sums[0] + sums[1]) / run.expected["loss"].get<double>() - 1) <= kAllowed);
  const Json& wanted = run.expected["preference"];
  const double beta = wanted["beta"].real(), smoothing = wanted["smoothing"].real();
  const double margin =
      beta * (double(sums[1]) - double(sums[0]) - wanted["reference"].get<double>());
  const double loss =
      (1 - smoothing) * std::log1p(std::exp(-margin)) + smoothing * std::log1p(std::exp(margin));
  CHECK(std::abs(loss / wanted["loss"].get<double>() - 1) <= 10 * kAllowed);
}

TEST_CASE("a merged model is the model with its adapters, and adapters are written as they came") {
  for (const char* name : {"llama_tied", "qwen2"}) {
    CAPTURE(name);
    Adapted run(name);
    const TempDir dir;
    models::export_adapters(dir.file("peft"), *run.model, run.shape, "base", *run.parallel, true);
    Context context(small_context());
    const auto model = models::make_language_model(run.stored->config());
    comm::DataParallel parallel(*model, model->blocks(), context, *run.group, {});
    parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
      run.stored->read(parameter.full_name(), rows, first_row);
      merge_rows(run, parameter.full_name(), first_row, rows);
    });
    const Tensor ids =
        from_host<int32_t>(context, to_host<int32_t>(run.inputs()), {run.rows, run.length});
    models::KvCache cache;
    check_logits(run, model->next_logits(ids, cache));
    CHECK(read_file(dir.file("peft/adapter_model.safetensors")).size() ==
          read_file(run.folder + "/adapter_model.safetensors").size());
    const SafetensorsFile ours(dir.file("peft/adapter_model.safetensors"));
    const SafetensorsFile theirs(run.folder + "/adapter_model.safetensors");
    for (const SafetensorsEntry& entry : theirs.entries()) {
      const SafetensorsEntry* found = ours.find(entry.name);
      REQUIRE(found != nullptr);
      CHECK(std::ranges::equal(ours.bytes(*found), theirs.bytes(entry)));
    }
    const models::AdapterShape again = models::read_adapter_shape(dir.file("peft"));
    CHECK(again.options.rank == run.shape.options.rank);
    CHECK(again.options.scale() == run.shape.options.scale());
  }
}

TEST_CASE("new adapters change nothing, whatever is sharded") {
  const auto stored = models::open_stored_model(fixture_path("llama/llama_tied"));
  const auto loss_of = [&](bool adapted) {
    comm::World world(0, nullptr);
    const auto group = world.group();
    Context context(small_context());
    const auto model = models::make_language_model(stored->config());
    if (adapted) nn::add_adapters(*model, {.rank = 4, .dropout = 0.5}, {nn::kAllLinear});
    comm::DataParallel parallel(*model, model->blocks(), context, *group, {.stage = 3});
    models::load_stored_model(*stored, parallel, nullptr, /*seed=*/7);
    const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
    const Tensor ids = from_host<int32_t>(context, tokens, {1, 6});
    return to_host<float>(model->loss(ids, ids))[0];
  };
  CHECK(loss_of(true) == Approx(loss_of(false)).epsilon(1e-6));
}

TEST_CASE("what is wrong with adapters is said") {
  const auto stored = models::open_stored_model(fixture_path("llama/llama_tied"));
  const auto model = models::make_language_model(stored->config());
  const auto error = [&](const nn::LoraOptions& options, std::vector<std::string> targets) {
    return message_of<ConfigError>([&] { nn::add_adapters(*model, options, targets); });
  };
  CHECK(contains(error({}, {"k_proj", "c_attn"}), "'c_attn'"));
  CHECK(contains(error({}, {"c_attn"}), "down_proj, gate_proj, k_proj"));
  CHECK(contains(error({.rank = 0}, {"k_proj"}), "rank is 0"));
  CHECK(contains(error({.dropout = 1}, {"k_proj"}), "dropout is 1"));
  CHECK(contains(error({}, {}), "no targets"));

  const TempDir dir;
  const std::string good = read_file(fixture_path("lora/llama_tied/adapter_config.json"));
  const auto refused = [&](const char* key, const Json& value) {
    Json config = Json::parse(good, {}, key);
    config[key] = value;
    dir.write("adapter_config.json", config.dump());
    return message_of<DataError>([&] { models::read_adapter_shape(dir.path()); });
  };
  CHECK(contains(refused("use_dora", true), "use_dora"));
  CHECK(contains(refused("bias", "all"), "'bias'"));
  CHECK(contains(refused("peft_type", "IA3"), "LORA"));
  CHECK(contains(refused("rank_pattern", {{"q_proj", 3}}), "rank_pattern"));
  CHECK(contains(refused("target_modules", ".*q_proj"), "target_modules"));
  CHECK(contains(refused("r", 0), "'r'"));
  // Refuses initializations that change the base weights, and unknown keys.
  for (const char* beginning :
       {"pissa", "pissa_niter_16", "olora", "loftq", "corda", "lora_ga", "mica", "something"}) {
    CAPTURE(beginning);
    CHECK(contains(refused("init_lora_weights", beginning), "init_lora_weights"));
  }
  CHECK(contains(refused("use_something_new", true), "use_something_new"));
  CHECK(contains(refused("arrow_config", {{"top_k", 3}}), "arrow_config"));
  const auto accepted = [&](const char* key, const Json& value) {
    Json config = Json::parse(good, {}, key);
    config[key] = value;
    dir.write("adapter_config.json", config.dump());
    return models::read_adapter_shape(dir.path()).options.rank == 3;
  };
  for (const Json& plain : {Json(true), Json(false), Json("gaussian"), Json("eva")}) {
    CHECK(accepted("init_lora_weights", plain));
  }
  CHECK(accepted("use_something_new", nullptr));
  CHECK_THROWS_AS(models::read_adapter_shape(dir.file("nowhere")), MissingInputError);
}

}  // namespace shale::test
