// Tries extreme numbers, which often cause errors, for every numeric option of train_lm. Either an
// error names the option, or the sizes of the run do not overflow.

#include <limits>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/language/config.h"
#include "shale/runtime/data/sampler.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using Flags = std::vector<std::string>;

const std::vector<std::string> kValues = {"-1",
                                          "-9223372036854775808",
                                          "-0.5",
                                          "0",
                                          "0.999999999",
                                          "1",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "288230376151711744",
                                          "288230376151711745",
                                          "1152921504606846976",
                                          "9223372036854775807",
                                          "1e18",
                                          "1e19",
                                          "1e400",
                                          "1e-320",
                                          "nan",
                                          "inf",
                                          "",
                                          " 1",
                                          "0x10",
                                          "\u0661"};

bool is_number(const std::string& json) {
  return json.find_first_not_of("0123456789.e+-") == json.npos || json == "null";
}

std::vector<std::string> numeric_options() {
  TrainConfig config;
  ConfigSpec spec("train_lm", "");
  describe(spec, config);
  std::vector<std::string> names;
  for (const auto& [name, value] : spec.values()) {
    if (is_number(value)) names.push_back(name);
  }
  return names;
}

// Returns the error message; empty if there is no error. Any other exception fails the test.
std::string refusal(const std::vector<std::string>& flags, int ranks, TrainConfig& config) {
  std::vector<const char*> argv = {"train_lm", "--data", "x"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  ConfigSpec spec("train_lm", "");
  describe(spec, config);
  try {
    parse_config(spec, static_cast<int>(argv.size()), argv.data());
    resolve(config, ranks);
    model_config(config.language, /*data_vocab=*/256);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

// Checks that no product of a run's sizes overflows.
void check_sizes(const TrainConfig& config, int ranks) {
  const RunConfig& run = config.run;
  const LanguageConfig& language = config.language;
  CHECK(run.micro_batch <= run.global_batch / ranks);
  const BatchLayout layout{
      .global_batch = run.global_batch, .micro_batch = run.micro_batch, .ranks = ranks};
  CHECK_NOTHROW(layout.validate());
  int64_t product = 0;
  CHECK_FALSE(__builtin_mul_overflow(run.global_batch, language.seq_len, &product));
  CHECK_FALSE(
      __builtin_mul_overflow(run.micro_batch * language.seq_len, sizeof(int32_t), &product));
  const LanguageModelConfig model = model_config(language, /*data_vocab=*/256);
  CHECK_FALSE(__builtin_mul_overflow(4 * model.width * sizeof(double), model.width, &product));
  CHECK_FALSE(__builtin_mul_overflow(model.padded_vocab * sizeof(double), model.width, &product));
  CHECK(model.layers <= 10'000);
  CHECK(static_cast<float>(language.dropout) < 1);
}

// Returns the error of parsing a command line; empty if it is accepted.
std::string parse_refusal(const Flags& flags) {
  TrainConfig config;
  ConfigSpec spec("train_lm", "");
  describe(spec, config);
  std::vector<const char*> arguments = {"train_lm", "--data", "text"};
  for (const std::string& flag : flags) arguments.push_back(flag.c_str());
  const int count = static_cast<int>(arguments.size());
  try {
    parse_config(spec, count, arguments.data());
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("no number as an option is a crash or an overflow", "[options]") {
  const std::vector<std::string> names = numeric_options();
  CHECK(names.size() >= 41);
  int refused = 0, accepted = 0;
  for (const std::string& name : names) {
    for (const std::string& value : kValues) {
      for (const int ranks : {1, 3}) {
        CAPTURE(name, value, ranks);
        TrainConfig config;
        const std::string message = refusal({"--" + name, value}, ranks, config);
        if (message.empty()) {
          ++accepted;
          check_sizes(config, ranks);
        } else {
          ++refused;
          CHECK(contains(message, name));
          CHECK(message.find('\n') == message.npos);
        }
      }
    }
  }
  CHECK(refused > accepted);
  CHECK(accepted > 200);
}

TEST_CASE("two numbers that are fine alone and too large together are refused", "[options]") {
  TrainConfig config;
  CHECK(contains(refusal({"--micro-batch", "1073741824", "--global-batch", "7"}, 2, config),
                 "global-batch"));
  config = {};
  CHECK(contains(refusal({"--micro-batch", "1073741824"}, std::numeric_limits<int>::max(), config),
                 "micro-batch") == false);
}

TEST_CASE("a folder that is named with nothing is an error, not none", "[options]") {
  for (const char* flag : {"--data", "--out", "--init", "--export", "--resume", "--config"}) {
    TrainConfig config;
    CHECK(contains(refusal({flag, ""}, 1, config), flag));
  }
}

TEST_CASE("what spares slow links says what it does not go with", "[options]") {
  const auto check = [](const Flags& first, const Flags& other, const Flags& words) {
    Flags flags = first;
    flags.insert(flags.end(), other.begin(), other.end());
    TrainConfig config;
    const std::string message = refusal(flags, 4, config);
    CAPTURE(message);
    if (words.empty()) CHECK(message.empty());
    for (const std::string& word : words) CHECK(contains(message, word));
  };
  const Flags local = {"--zero", "2", "--shard-ranks", "2", "--outer-every", "5"};
  check(local, {}, {});
  check(local, {"--outer-start", "1000"}, {"--outer-every 5", "--outer-start 1000"});
  check(local, {"--ema", "0.9"}, {"--outer-every 5", "--ema 0.9"});
  check(local, {"--reproducible"}, {"--outer-every 5", "--reproducible"});
  check(local, {"--skip-outliers", "6"}, {"--outer-every 5", "--skip-outliers 6"});
  check(local, {"--offload", "optimizer"}, {"--outer-every 5", "--offload optimizer"});
  check(local, {"--cuda-graph"}, {"--outer-every 5", "--cuda-graph"});
  check(local, {"--optimizer", "adamw-8bit"}, {"--outer-every 5", "--optimizer adamw-8bit"});
  check(local, {"--optimizer", "1bit-adam"}, {"--outer-every 5", "--optimizer 1bit-adam"});

  const Flags one_bit = {"--zero", "2", "--shard-ranks", "2", "--optimizer", "1bit-adam"};
  check(one_bit, {}, {});
  check(one_bit, {"--offload", "optimizer"}, {"--optimizer 1bit-adam", "--offload optimizer"});

  const Flags codes = {"--zero", "3", "--quantize-gathers", "8", "--quantize-reductions", "4"};
  check(codes, {}, {});
  check(codes, {"--shard-ranks", "2"}, {"--quantize-reductions 4", "2 replicas"});
  check(codes, {"--shard-ranks", "1"}, {"--quantize-gathers 8", "found one"});
  check(codes, {"--reproducible"}, {"--quantize-gathers 8", "--reproducible"});
  check(codes, {"--offload", "params"}, {"--quantize-gathers 8", "--offload params"});
  check(codes, {"--cuda-graph"}, {"--quantize-gathers 8", "--cuda-graph"});
}

TEST_CASE("a config file of a version with more options is read where it used none of them") {
  TrainConfig config;
  ConfigSpec spec("train_lm", "");
  describe(spec, config);
  // Version 0.2.0 wrote this file, before some options were removed.
  std::string text = test::read_file(test::fixture_path("former_config.json"));
  spec.read_json(text, "config.json");
  CHECK(config.language.seq_len == 32);
  const std::string used = "\"prefetch\": 1";
  text.replace(text.find(used), used.size(), "\"prefetch\": 2");
  CHECK(test::message_of<ConfigError>([&] { spec.read_json(text, "config.json"); }) ==
        "config.json: prefetch was removed; leave it out: one block is gathered ahead");
}

TEST_CASE("an option that does nothing alone is refused, with the name of what it needs") {
  // Columns: an option, its default value, the name that the error contains, and flags with which
  // the option is valid.
  const struct {
    Flags given, by_default;
    std::string names;
    Flags with;
  } cases[] = {
      {{"--eval-samples", "3"}, {"256"}, "--eval-every", {"--eval-every", "2"}},
      {{"--sample-prompt", "a"}, {""}, "--sample-tokens", {"--sample-tokens", "2"}},
      {{"--export-shard-size", "9"}, {"5e9"}, "--export", {"--export", "out"}},
      {{"--data-field", "b"}, {"text"}, "--task pretrain", {}},
      {{"--document-token", "3"}, {}, "--document-mask", {"--document-mask"}},
      {{"--document-token", "3"}, {}, "--packing best-fit", {"--packing", "best-fit"}},
      {{"--chat-template", "qwen"}, {"auto"}, "--task sft or --task dpo", {"--task", "dpo"}},
      {{"--dpo-beta", "0.2"}, {"0.1"}, "--task dpo", {"--task", "dpo"}},
      {{"--lora-alpha", "3"}, {}, "--lora-rank or --lora-init", {"--lora-rank", "2"}},
      {{"--lora-dropout", "0.1"}, {"0"}, "--lora-rank", {"--lora-init", "folder"}},
      {{"--lora-targets", "q_proj"}, {"all-linear"}, "--lora-rank", {"--lora-rank", "2"}},
      {{"--frozen-dtype", "nf4"}, {"auto"}, "--lora-rank", {"--lora-rank", "2"}},
      {{"--decay-steps", "3"}, {}, "--schedule wsd", {"--schedule", "wsd"}},
      {{"--decay-steps", "3"}, {}, "--schedule wsd-1-sqrt", {"--schedule", "wsd-1-sqrt"}},
      {{"--freeze-step", "3"}, {}, "--optimizer 1bit-adam", {"--optimizer", "1bit-adam"}},
      {{"--outer-lr", "0.5"}, {"0.7"}, "--outer-every", {"--outer-every", "2"}},
      {{"--context-kind", "ring"}, {"gather"}, "--context;", {"--context", "2"}},
      {{"--fp8-scaling", "tensor"}, {"block"}, "--dtype fp8", {"--dtype", "fp8"}},
      {{"--fp8-kept-blocks", "0"}, {"1"}, "--dtype fp8", {"--dtype", "fp8"}},
      {{"--trace-steps", "3-5"}, {}, "--trace", {"--trace", "a.json"}},
  };
  const auto joined = [](Flags first, const Flags& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  for (const auto& [given, by_default, names, with] : cases) {
    CAPTURE(given);
    if (names == "--task pretrain") {
      CHECK(contains(parse_refusal(joined(given, {"--task", "sft"})), names));
    } else {
      const std::string message = parse_refusal(given);
      CHECK(contains(message, given.front() + " has no effect without "));
      CHECK(contains(message, names));
    }
    CHECK(parse_refusal(joined(given, with)).empty());
    if (!by_default.empty()) CHECK(parse_refusal(joined({given.front()}, by_default)).empty());
  }
}

}  // namespace shale::models
