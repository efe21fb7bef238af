#include "shale/models/llama/llama.h"

#include <map>

#include "shale/base/error.h"
#include "shale/base/trace.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/language/generate.h"
#include "shale/runtime/nn/fp8.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

using models::LanguageModelConfig;

bool is_mixture(const std::string& family) {
  return family == "mixtral" || family == "olmoe" || family == "qwen3_moe";
}

// A small model with every feature of its family, and heads wider than width / heads.
LanguageModelConfig small(const std::string& family) {
  LanguageModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 24;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 8;
  config.hidden = 40;
  config.vocab = 50;
  config.padded_vocab = 64;
  config.context = 16;
  config.tied = family == "llama";
  if (is_mixture(family)) {
    config.experts = 4;
    config.active_experts = 2;
    config.renormalise = family != "olmoe";
  }
  return config;
}

const char* const kFamilies[] = {"llama", "mistral", "qwen2", "qwen3",
                                 "olmo2", "mixtral", "olmoe", "qwen3_moe"};

int64_t parameter_count(const LanguageModelConfig& config) {
  const auto model = models::make_language_model(config);
  int64_t count = 0;
  for (const Parameter* parameter : model->parameters()) count += parameter->numel();
  return count - (config.padded_vocab - config.vocab) * config.width * (config.tied ? 1 : 2);
}

}  // namespace

TEST_CASE("presets of Llama's kind have the published numbers of parameters") {
  const std::map<std::string, int64_t> published = {
      {"llama-160m", 162'417'408},      {"smollm2-135m", 134'515'008},
      {"smollm2-360m", 361'821'120},    {"smollm2-1.7b", 1'711'376'384},
      {"tinyllama-1.1b", 1'100'048'384},
      {"llama2-7b", 6'738'415'616},     {"llama3.1-8b", 8'030'261'248},
      {"llama3.2-1b", 1'235'814'400},   {"llama3.2-3b", 3'212'749'824},
      {"llama3.1-70b", 70'553'706'496}, {"mistral-7b", 7'248'023'552},
      {"qwen2.5-0.5b", 494'032'768},    {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen3-0.6b", 596'049'920},      {"qwen3-1.7b", 1'720'574'976},
      {"olmo2-1b", 1'484'916'736},      {"mixtral-8x7b", 46'702'792'704},
      {"olmoe-1b-7b", 6'919'161'856},   {"qwen3-30b-a3b", 30'532'122'624}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    CHECK(parameter_count(models::find_preset(name).config) == count);
  }
}

TEST_CASE("a shape that a checkpoint has gives the model back, for every kind") {
  for (const char* family : kFamilies) {
    for (const RopeScaling scaling :
         {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn}) {
      LanguageModelConfig config = small(family);
      config.rope = {.theta = 5e5, .scaling = scaling, .factor = 4, .original_context = 32};
      const std::string shape = models::model_shape_json(config);
      CAPTURE(shape);
      CHECK(models::model_shape_json(models::parse_model_shape(shape, "shape")) == shape);
    }
  }
}

TEST_CASE("every kind learns, alike on any number of threads and on a GPU's kernels") {
  for (const char* family : kFamilies) {
    CAPTURE(family);
    const auto run = [&](const ContextOptions& context, int64_t steps) {
      return train({.model = small(family),
                    .context = context,
                    .lr = 3e-3f,
                    .steps = steps,
                    .batch = [](int64_t step) {
                      return token_batch(rand_int<int32_t>(36, uint32_t(step % 2), 0, 49), 3, 11);
                    }});
    };
    const ShortRunResult one = run({.threads = 1, .seed = 1}, 20),
                         two = run({.threads = 3, .seed = 1}, 20);
    CHECK(one.losses.front() - one.losses.back() > 0.3f);
    CHECK(same_bits(one.losses, two.losses));
    CHECK(same_bits(one.parameters, two.parameters));
    if (is_mixture(family)) continue;  // only the CPU has MoE kernels
    const ShortRunResult gpu = run(
        {.device = {.type = DeviceType::kEmu}, .threads = 2, .deterministic = true, .seed = 1}, 3);
    for (size_t i = 0; i < gpu.losses.size(); ++i) {
      CHECK(std::abs(gpu.losses[i] - one.losses[i]) <= 2e-5f);
    }
  }
}

TEST_CASE("what is generated with a cache is what the model says of the whole text") {
  for (const char* family : kFamilies) {
    CAPTURE(family);
    comm::World world(0, nullptr);
    const auto group = world.group();
    Context context(small_context());
    const auto model = models::make_language_model(small(family));
    const comm::DataParallel parallel(*model, model->blocks(), context, *group, {.seed = 5});
    const std::vector<int32_t> text = rand_int<int32_t>(12, 3, 0, 49);
    const auto logits = [&](int64_t first, int64_t count, models::KvCache& cache) {
      const std::vector<int32_t> part(text.begin() + first, text.begin() + first + count);
      return to_host<float>(
          model->next_logits(from_host<int32_t>(context, part, {1, count}), cache));
    };
    models::KvCache whole, parts{.capacity = 12};
    const std::vector<float> want = logits(0, 12, whole);
    logits(0, 5, parts);
    for (int64_t i = 5; i < 11; ++i) logits(i, 1, parts);
    const std::vector<float> got = logits(11, 1, parts);
    for (size_t i = 0; i < 50; ++i) CHECK(std::abs(got[i] - want[i]) <= 2e-6f);
    CHECK(contains(message_of<ShapeError>([&] { logits(0, 1, parts); }), "expected at most 12"));
  }
}

TEST_CASE("what several layers read becomes numbers of fp8 once") {
  for (const char* family : kFamilies) {
    if (is_mixture(family)) continue;
    CAPTURE(family);
    comm::World world(0, nullptr);
    const auto group = world.group();
    Context context(small_context());
    Tracer tracer;
    context.set_tracer(&tracer);
    const auto model = models::make_language_model(small(family));
    nn::compute_in_fp8(model->blocks(), 0);
    const comm::DataParallel parallel(*model, model->blocks(), context, *group,
                                      {.compute = DType::kBF16, .seed = 5});
    models::KvCache cache;
    const std::vector<int32_t> text = rand_int<int32_t>(12, 3, 0, 49);
    model->next_logits(from_host<int32_t>(context, text, {1, 12}), cache);
    // Each of two blocks quantizes seven weights and four inputs: those of QKV, of the output
    // projection, of the two up projections, and of the down projection.
    CHECK(tracer.totals().at("quantize_fp8").calls == 2 * (7 + 4));
  }
}

// There is no GPU here: the sizes are checked before one is needed.
TEST_CASE("layers whose sizes cuBLASLt's fp8 GEMMs do not take are named before a run") {
  const Exec gpu{.device = {.type = DeviceType::kCuda, .arch = 89}};
  LanguageModelConfig config = small("llama");
  const auto message = [&](const Exec& exec) {
    const auto model = models::make_language_model(config);
    return message_of<ConfigError>(
        [&] { nn::compute_in_fp8(model->blocks(), 0, Operands::kFp8Tensor, exec); });
  };
  CHECK(contains(message(gpu),
                 "layers.0.self_attn.q_proj is [32,24] on each rank, expected multiples of 16 for "
                 "cuBLASLt on cuda:0; use other sizes"));
  config.width = 32;
  CHECK(contains(message(gpu), "layers.0.mlp.gate_proj is [40,32] on each rank"));
  CHECK_NOTHROW(nn::compute_in_fp8(models::make_language_model(config)->blocks(), 0));
}

TEST_CASE("sizes that do not go together are one line") {
  const auto message = [](auto change) {
    LanguageModelConfig config = small("llama");
    change(config);
    return message_of<ConfigError>([&] { models::make_language_model(config); });
  };
  CHECK(contains(message([](auto& c) { c.kv_heads = 3; }),
                 "kv-heads is 3, expected a divisor of heads = 4"));
  CHECK(contains(message([](auto& c) { c.head_size = 7; }), "rope: head size is 7"));
  CHECK(contains(message([](auto& c) { c.hidden = 0; }), "hidden is 0"));
  CHECK(contains(message([](auto& c) {
                   c.head_size = 0;
                   c.width = 26;
                 }),
                 "a multiple of heads"));
  CHECK(contains(message([](auto& c) { c.mlp_bias = true; }), "mlp_bias"));
  CHECK(contains(message([](auto& c) { c.attention_softcap = 1e-4f; }),
                 "attention_softcap is 0.0001, expected 0, or 0.001 to 1000"));
  CHECK(contains(message([](auto& c) { c.experts = 4; }),
                 "experts is 4, expected none: llama models have no experts"));
  CHECK(contains(message([](auto& c) {
                   c = small("olmoe");
                   c.active_experts = 5;
                 }),
                 "active-experts is 5, expected 1 to experts = 4"));
  CHECK(contains(message_of<ConfigError>(
                     [] { models::make_language_model(small("qwen3"), {.dropout = 0.1f}); }),
                 "qwen3 models do not support it"));
}

}  // namespace shale::test
