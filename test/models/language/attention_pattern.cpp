#include "shale/models/language/attention_pattern.h"

#include <cmath>
#include <fstream>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/language/generate.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ref_attention.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::message_of;

using Row = std::vector<int32_t>;

// Makes a pattern from a file that gives these sizes; 0 leaves a size out.
AttentionPattern named(const char* name, int64_t local, int64_t global = 0, int64_t random = 0,
                       int64_t seed = 7) {
  const test::TempDir folder;
  std::string text = cat("{\"pattern\": \"", name, "\", \"local\": ", local);
  if (global > 0) text += cat(", \"global\": ", global);
  if (random > 0) text += cat(", \"random\": ", random);
  return attention_pattern(folder.write("pattern.json", text + "}"), seed);
}

LanguageModelConfig tiny(const char* family, const AttentionPattern& pattern) {
  LanguageModelConfig config;
  config.family = family;
  config.layers = 2, config.width = 32, config.heads = 4;
  config.vocab = 50, config.padded_vocab = 64, config.context = 640;
  if (config.family == "llama") config.kv_heads = 2, config.hidden = 40;
  config.pattern = pattern;
  return config;
}

}  // namespace

TEST_CASE("patterns have the blocks that their papers say") {
  CHECK(named("local", 2).keys_of(0, 5) == Row{4, 5});
  CHECK(named("local", 3).keys_of(0, 1) == Row{0, 1});
  CHECK(named("longformer", 2, 1).keys_of(0, 5) == Row{0, 4, 5});
  CHECK(named("longformer", 2, 2).keys_of(0, 2) == Row{0, 1, 2});
  CHECK(named("strided", 3).keys_of(0, 10) == Row{1, 4, 7, 8, 9, 10});
  CHECK(named("fixed", 3, 1).keys_of(0, 7) == Row{2, 5, 6, 7});
  // The second head sees other blocks than the first.
  CHECK(named("fixed", 3, 1).keys_of(1, 7) == Row{1, 4, 6, 7});
  CHECK(named("fixed", 3, 1).keys_of(3, 7) == Row{2, 5, 6, 7});
  CHECK(named("fixed", 4, 2).keys_of(0, 5) == Row{2, 3, 4, 5});
}

TEST_CASE("random blocks are others by head and seed, and never twice the same") {
  const AttentionPattern pattern = named("bigbird", 2, 1, 3);
  bool heads_differ = false, seeds_differ = false;
  for (int64_t query = 0; query < 30; ++query) {
    const Row row = pattern.keys_of(0, query);
    CAPTURE(query);
    CHECK(std::ssize(row) == std::min<int64_t>(query + 1, 6));
    CHECK(std::adjacent_find(row.begin(), row.end(), std::greater_equal<>()) == row.end());
    CHECK((row.front() == 0 && row.back() == query));
    CHECK(row == pattern.keys_of(0, query));
    heads_differ = heads_differ || row != pattern.keys_of(1, query);
    const AttentionPattern other = named("bigbird", 2, 1, 3, 8);
    seeds_differ = seeds_differ || row != other.keys_of(0, query);
  }
  CHECK((heads_differ && seeds_differ));
}

TEST_CASE("a name is a pattern with the sizes that a file may leave out") {
  CHECK(attention_pattern("bigbird", 7) == named("bigbird", 4, 1, 1));
  CHECK(attention_pattern("local", 7) == named("local", 4));
}

TEST_CASE("a pattern's share is that of the blocks below the diagonal") {
  CHECK(named("local", 1).share(512, 2) == 4.0 / 10);
  CHECK(named("local", 9).share(512, 1) == 1);
  CHECK(AttentionPattern().share(512, 1) == 1);
}

TEST_CASE("a pattern comes back from what checkpoints say of it") {
  const test::TempDir folder;
  const std::string file = folder.path() / "rows.json";
  std::ofstream(file) << R"({"block": 256, "rows": [[0], [0, 1], [1, 2]]})";
  const AttentionPattern listed = attention_pattern(file, 1);
  CHECK(listed.keys_of(3, 2) == Row{1, 2});
  for (const char* family : {"gpt2", "llama"}) {
    for (const AttentionPattern& pattern :
         {listed, named("local", 2), named("fixed", 4, 2), named("strided", 3),
          named("longformer", 2, 3), named("bigbird", 2, 1, 3)}) {
      const LanguageModelConfig config = tiny(family, pattern);
      const std::string shape = model_shape_json(config);
      CAPTURE(shape);
      CHECK(parse_model_shape(shape, "x").pattern == pattern);
      CHECK(contains(message_of<ConfigError>([&] {
                       model_family(family).create(folder.path() / "out", config, {}, {});
                     }),
                     "the attention pattern cannot be stored in files of"));
    }
  }
  LanguageModelConfig longer = tiny("gpt2", listed);
  longer.context = 769;
  CHECK(contains(message_of<ConfigError>([&] { make_language_model(longer); }),
                 "has 3 rows of 256 tokens, expected rows for 769"));
  const std::string bad = R"({"attention_pattern": "listed", "attention_block": 128,)"
                          R"( "attention_rows": [[0], [2]]})";
  CHECK(contains(message_of<DataError>([&] { parse_pattern(JsonObject(bad, "x")); }),
                 "row 1 lists block 2, expected blocks 0 to 1"));
}

TEST_CASE("files of blocks that cannot be are one line that names the row") {
  const test::TempDir folder;
  const std::string file = folder.path() / "rows.json";
  const auto message = [&](const char* text) {
    std::ofstream(file, std::ios::trunc) << text;
    return message_of<DataError>([&] { attention_pattern(file, 1); });
  };
  CHECK(contains(message(R"({"block": 100, "rows": [[0]]})"),
                 "block is 100, expected a multiple of 128"));
  CHECK(contains(message(R"({"block": 0, "rows": [[0]]})"),
                 "block is 0, expected a multiple of 128"));
  CHECK(contains(message(R"({"block": 128, "rows": []})"), "there are no rows"));
  CHECK(contains(message(R"({"block": 128, "rows": [[0], []]})"), "row 1 lists no block"));
  CHECK(contains(message(R"({"block": 128, "rows": [[0], [0, 2]]})"), "row 1 lists block 2"));
  CHECK(contains(message(R"({"block": 128, "rows": [[0], [-1]]})"), "row 1 lists block -1"));
  CHECK(
      contains(message(R"({"block": 128, "rows": [[0], [1, 0]]})"), "row 1 lists block 0 after 1"));
  CHECK(contains(message(R"({"block": 128, "rows": [0]})"), "a list of lists of integers"));
  CHECK(contains(message(R"({"pattern": "window"})"), "local, fixed, strided, longformer"));
  CHECK(contains(message(R"({"pattern": "local", "block": 100})"), "expected a multiple of 128"));
  CHECK(contains(message(R"({"pattern": "local", "random": 1})"), "0: the pattern has none"));
  CHECK(contains(message(R"({"pattern": "fixed", "global": 5})"), "at most 4, the size of local"));
  const AttentionPattern open = [&] {
    std::ofstream(file, std::ios::trunc) << R"({"block": 128, "rows": [[0], [0]]})";
    return attention_pattern(file, 1);
  }();
  check_covers(open, 256, /*documents=*/false);
  CHECK(contains(message_of<ConfigError>([&] { check_covers(open, 256, /*documents=*/true); }),
                 "row 1 does not list its own block"));
}

// Tests prompts of several blocks, token-by-token decoding across a block boundary, and heads with
// different blocks.
TEST_CASE("generation with a cache sees the blocks that training sees") {
  for (const char* family : {"gpt2", "llama"}) {
    for (const AttentionPattern& pattern :
         {named("fixed", 2, 1), named("bigbird", 1, 1, 1), named("local", 1)}) {
      CAPTURE(family, int(pattern.kind));
      comm::World world(0, nullptr);
      const auto group = world.group();
      Context context(test::small_context());
      const auto model = make_language_model(tiny(family, pattern));
      const comm::DataParallel parallel(*model, model->blocks(), context, *group, {.seed = 5});
      const std::vector<int32_t> text = test::rand_int<int32_t>(520, 3, 0, 49);
      const auto logits = [&](int64_t first, int64_t count, KvCache& cache) {
        const std::vector<int32_t> part(text.begin() + first, text.begin() + first + count);
        return to_host<float>(
            model->next_logits(from_host<int32_t>(context, part, {1, count}), cache));
      };
      KvCache parts;
      logits(0, 509, parts);
      for (int64_t i = 509; i < 515; ++i) {
        const std::vector<float> got = logits(i, 1, parts);
        KvCache whole;
        const std::vector<float> want = logits(0, i + 1, whole);
        for (size_t j = 0; j < 50; ++j) CHECK(std::abs(got[j] - want[j]) <= 1e-5f);
      }
      // Prompts of different lengths in one batch give the same texts as each alone.
      const std::vector<std::vector<int32_t>> prompts = {{text.begin(), text.begin() + 300},
                                                         {4, 5}};
      const auto both = generate_all(*model, context, prompts, {.tokens = 3});
      CHECK(both[0] == generate_all(*model, context, {prompts[0]}, {.tokens = 3}).front());
    }
  }
}

TEST_CASE("a model with a pattern has its loss, and one that covers all that of none") {
  const auto loss_with = [&](const AttentionPattern& pattern) {
    comm::World world(0, nullptr);
    const auto group = world.group();
    Context context(test::small_context());
    const auto model = make_language_model(tiny("llama", pattern));
    const comm::DataParallel parallel(*model, model->blocks(), context, *group, {.seed = 5});
    const NoGrad no_grad(context);
    const Tensor ids =
        from_host<int32_t>(context, test::rand_int<int32_t>(600, 3, 0, 49), {1, 600});
    return to_host<float>(model->loss(ids, ids)).front();
  };
  CHECK(loss_with(named("local", 5)) == loss_with({}));
  CHECK(loss_with(named("local", 1)) != loss_with({}));
}

}  // namespace shale::models
