// Compares likelihoods of answers and texts with lm-evaluation-harness. The numbers were computed
// in f64 by test/fixtures/make_choices.py, which explains every key at its top.
#include "shale/models/language/likelihood.h"

#include "shale/base/error.h"
#include "shale/comm/world.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/models/language/generate.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::message_of;

struct Loaded {
  std::string folder = test::fixture_path("choices/");
  std::shared_ptr<const StoredTokenizer> tokenizer = open_model_tokenizer(folder + "model");
  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context{test::small_context()};
  std::unique_ptr<LanguageModel> model =
      load_model(*open_model(folder + "model"), context, DType::kF32);

  Json expected() const { return test::json_file(folder + "expected.json"); }
};

}  // namespace

TEST_CASE("questions have the scores of lm-evaluation-harness") {
  Loaded run;
  for (const auto& [name, format] :
       {std::pair("hellaswag", ChoiceFormat::kHellaSwag), std::pair("arc", ChoiceFormat::kArc),
        std::pair("mmlu", ChoiceFormat::kMmlu)}) {
    CAPTURE(name);
    const auto items = read_choices(run.folder + name + ".jsonl", format);
    REQUIRE(items.size() == 20);
    const ChoiceScores scores =
        score_choices(*run.model, run.context, *run.tokenizer, items, *run.group);
    const Json want = run.expected()[name];
    CHECK(double(scores.right) / 20 == want["acc"].get<double>());
    CHECK(double(scores.right_by_character) / 20 == want["acc_norm"].get<double>());
    CHECK(double(scores.right_by_token) / 20 == want["acc_token"].get<double>());
  }
}

TEST_CASE("every token of a text but the first is predicted once") {
  Loaded run;
  const Json want = run.expected()["text"];
  const std::string text = test::read_file(run.folder + "text.txt");
  const auto tokens = TokenEncoder(run.tokenizer->tokenizer).encode(text);
  for (const int64_t batch : {1, 3, 100}) {
    TextScore score = score_text(*run.model, run.context, tokens,
                                 {.length = want["window"].integer(), .batch = batch}, *run.group);
    CHECK(score.tokens == want["tokens"].get<int64_t>());
    CHECK(score.loss == Approx(want["loss"].get<double>()).epsilon(1e-5));
    score.bytes = std::ssize(text);
    CHECK(score.bits_per_byte() * double(text.size()) * std::log(2.0) == Approx(score.loss));
    CHECK(std::log(score.perplexity()) * double(score.tokens) == Approx(score.loss));
  }
  CHECK_THROWS_AS(score_text(*run.model, run.context, {1}, {.length = 8}, *run.group), DataError);
}

TEST_CASE("what is wrong with a question is said, with its line") {
  const test::TempDir dir;
  const auto error = [&](const std::string& line, ChoiceFormat format) {
    const std::string path = dir.write("q.jsonl", line);
    return message_of<DataError>([&] { read_choices(path, format); });
  };
  CHECK(contains(error("{}", ChoiceFormat::kArc), "q.jsonl:1: no 'question'"));
  CHECK(contains(
      error(R"({"question": "q", "choices": ["a", "b"], "answer": 2})", ChoiceFormat::kMmlu),
      "'answer' is 2, expected 0 to 1"));
  std::string choices = "\"a\"";
  for (int i = 1; i < 27; ++i) choices += ",\"a\"";
  CHECK(contains(error("{\"question\": \"q\", \"choices\": [" + choices + "], \"answer\": 0}",
                       ChoiceFormat::kMmlu),
                 "'choices' has 27 entries, expected at most 26"));
  const std::string labels = R"("choices": {"text": ["a", "b"], "label": ["A", "B"]})";
  CHECK(contains(
      error(cat(R"({"question": "q", "answerKey": "C", )", labels, "}"), ChoiceFormat::kArc),
      "'C'"));
  CHECK(contains(error("[]", ChoiceFormat::kHellaSwag), "is not a JSON object"));
  CHECK(contains(error("\n", ChoiceFormat::kHellaSwag), "no questions"));
}

TEST_CASE("prompts of different lengths go on together as each alone") {
  Loaded run;
  const std::vector<std::vector<int32_t>> prompts = {{5, 6, 7, 8, 9}, {40}, {11, 12, 13}};
  for (const float temperature : {0.0f, 0.9f}) {
    const GenerateOptions options{
        .tokens = 12, .temperature = temperature, .top_k = 0, .top_p = 0.95f, .seed = 3};
    const auto together = generate_all(*run.model, run.context, prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto alone = generate_all(*run.model, run.context, {prompts[i]}, options, int64_t(i));
      CHECK(together[i] == alone[0]);
      CHECK(alone[0].size() == 12);
    }
  }
  // One text ends before the other texts.
  const auto ends = generate_all(*run.model, run.context, prompts, {.tokens = 6}, 0,
                                 [](size_t prompt, int32_t) { return prompt != 1; });
  CHECK(ends[0].size() == 6);
  CHECK(ends[1].size() == 1);
  CHECK_THROWS_AS(generate_all(*run.model, run.context, {{1}, {}}, {}), ShapeError);
}

TEST_CASE("tokens are chosen among those that have so much probability together") {
  Loaded run;
  const std::vector<int32_t> prompt = {5, 6, 7};
  const auto likeliest =
      generate_all(*run.model, run.context, {prompt}, {.tokens = 8, .temperature = 0});
  const auto narrow = generate_all(*run.model, run.context, {prompt},
                                   {.tokens = 8, .temperature = 1, .top_k = 0, .top_p = 1e-6f});
  CHECK(narrow == likeliest);
}

}  // namespace shale::models
