#include "models/gpt2.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/data_parallel.h"
#include "comm/world.h"
#include "models/generate.h"
#include "models/hf_folder.h"
#include "runtime/autograd/tape.h"
#include "test/support/catch.h"
#include "test/support/fixtures.h"
#include "test/support/numbers.h"
#include "test/support/op_check.h"
#include "test/support/temp_dir.h"

namespace shale::test {
namespace {

using models::LanguageModelConfig;

LanguageModelConfig small() {
  LanguageModelConfig config;
  config.layers = 2;
  config.width = 24;
  config.heads = 3;
  config.vocab = 50;
  config.padded_vocab = 64;
  config.context = 16;
  return config;
}

struct Fixture {
  explicit Fixture(const LanguageModelConfig& config)
      : model(models::make_language_model(config)),
        parallel(*model, model->blocks(), context, *group, {.seed = 5}) {}

  Tensor ids(const std::vector<int32_t>& tokens, int64_t rows = 1) {
    return from_host<int32_t>(context, tokens, {rows, int64_t(tokens.size()) / rows});
  }

  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context{small_context()};
  std::unique_ptr<models::LanguageModel> model;
  comm::DataParallel parallel;
};

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab) {
  return rand_int<int32_t>(count, 3, 0, vocab - 1);
}

}  // namespace

TEST_CASE("presets have the published numbers of parameters") {
  const std::pair<const char*, int64_t> published[] = {{"gpt2-124m", 124439808},
                                                       {"gpt2-355m", 354823168},
                                                       {"gpt2-774m", 774030080},
                                                       {"gpt2-1558m", 1557611200}};
  for (const auto& [name, want] : published) {
    const LanguageModelConfig config = models::preset(name, 1024);
    const auto model = models::make_language_model(config);  // no memory: nothing is materialised
    int64_t count = 0;
    for (const Parameter* parameter : model->parameters()) count += parameter->numel();
    CAPTURE(name);
    CHECK(count - (config.padded_vocab - config.vocab) * config.width == want);
    CHECK(config.padded_vocab == 50304);
  }
}

TEST_CASE("impossible models are errors that say what is wrong") {
  LanguageModelConfig config = small();
  config.heads = 5;
  CHECK(contains(message_of<ConfigError>([&] { models::make_language_model(config); }),
                 "width is 24, want a multiple of heads = 5"));
  const std::string unknown = message_of<ConfigError>([] { models::preset("gpt3", 8); });
  CHECK(contains(unknown, "gpt3"));
  CHECK(contains(unknown, "gpt2-124m"));
}

TEST_CASE("generation with the cache sees what a forward over the whole text sees") {
  Fixture f(small());
  const std::vector<int32_t> tokens = some_tokens(16, 50);
  models::KvCache whole;
  const std::vector<float> want = to_host<float>(f.model->next_logits(f.ids(tokens), whole));
  models::KvCache piecewise;
  std::vector<float> got;
  for (const auto& [begin, end] : {std::pair(0, 7), std::pair(7, 8), std::pair(8, 16)}) {
    got = to_host<float>(
        f.model->next_logits(f.ids({tokens.begin() + begin, tokens.begin() + end}), piecewise));
  }
  // Attention over cached keys adds in another order: a few roundings of values of order 1.
  CHECK(max_error(to_f64(got), to_f64(want)) <= 1e-5);
  CHECK(contains(message_of<ShapeError>([&] { f.model->next_logits(f.ids({1}), piecewise); }),
                 "context is 16"));
}

TEST_CASE("the loss of one token is what its logits say") {
  Fixture f(small());
  const NoGrad no_grad(f.context);
  const std::vector<int32_t> tokens = some_tokens(5, 50);
  models::KvCache cache;
  const std::vector<float> logits = to_host<float>(f.model->next_logits(f.ids(tokens), cache));
  double sum = 0;
  for (int i = 0; i < 50; ++i) sum += std::exp(double(logits[size_t(i)]));
  const double want = std::log(sum) - logits[7];
  const Tensor targets = f.ids({-1, -1, -1, -1, 7});
  CHECK(to_host<float>(f.model->loss(f.ids(tokens), targets))[0] == Approx(want).epsilon(1e-5));
}

TEST_CASE("text can grow beyond the context, and does not depend on who writes it") {
  const auto write = [](uint64_t seed) {
    Fixture f(small());
    return models::generate(*f.model, f.context, {1, 2, 3}, {.tokens = 60, .seed = seed});
  };
  const std::vector<int32_t> text = write(1);
  CHECK(text.size() == 60);
  CHECK(std::all_of(text.begin(), text.end(), [](int32_t t) { return t >= 0 && t < 50; }));
  CHECK(write(1) == text);
  CHECK(write(2) != text);
  Fixture f(small());
  CHECK_THROWS_AS(models::generate(*f.model, f.context, {}, {}), ShapeError);
}

TEST_CASE("dropout is active in training only, and leaves the expectation alone") {
  LanguageModelConfig config = small();
  config.dropout = 0.3f;
  Fixture f(config), plain(small());
  const std::vector<int32_t> tokens = some_tokens(32, 50);
  const auto loss = [&](Fixture& x) {
    return to_host<float>(x.model->loss(x.ids(tokens, 2), x.ids(tokens, 2)))[0];
  };
  CHECK(loss(f) != loss(plain));
  const Inference a(f.context), b(plain.context);
  CHECK(loss(f) == loss(plain));
}

TEST_CASE("a folder that transformers wrote gives the logits that transformers computed") {
  for (const char* name : {"hf_tiny", "hf_tiny_bf16"}) {
    CAPTURE(name);
    const std::string folder = fixture_path(cat("gpt2/", name));
    std::ifstream file(folder + "_logits.json");
    const auto want = nlohmann::json::parse(file);
    const models::HfFolder stored(folder);
    LanguageModelConfig config;
    stored.apply_to(config);
    Fixture f(config);
    stored.load_into(f.parallel);

    std::vector<int32_t> tokens;
    for (const auto& row : want["ids"]) {
      for (const int32_t token : row) tokens.push_back(token);
    }
    models::KvCache cache;
    const std::vector<float> logits = to_host<float>(f.model->next_logits(f.ids(tokens, 2), cache));
    for (size_t b = 0; b < 2; ++b) {
      for (int64_t v = 0; v < config.vocab; ++v) {
        const float got = logits[b * size_t(config.padded_vocab) + size_t(v)];
        // transformers' own f32 strays 2e-7 from f64; a few times that for another order of sums
        REQUIRE(got == Approx(want["last_logits"][b][size_t(v)].get<double>()).margin(2e-6));
      }
    }
  }
}

TEST_CASE("an exported folder is read back bit for bit") {
  const TempDir dir;
  const std::string folder = (dir.path() / "export").string();
  Fixture f(small());
  models::export_hf_folder(folder, *f.model, f.parallel, true);
  const models::HfFolder stored(folder);
  LanguageModelConfig config;
  stored.apply_to(config);
  CHECK(config.vocab == 50);
  config.padded_vocab = 64;
  Fixture other(config);
  stored.load_into(other.parallel);
  for (const Parameter* parameter : f.model->parameters()) {
    const std::string name = parameter->full_name();
    CAPTURE(name);
    std::vector<float> want = to_host<float>(parameter->value);
    if (name == "wte.weight") std::fill(want.begin() + 50 * 24, want.end(), 0.0f);  // padding
    CHECK(same_bits(to_host<float>(other.model->find_parameter(name)->value), want));
  }
}

}  // namespace shale::test
