#include "shale/base/config.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

enum class Schedule { kCosine, kLinear, kConstant };

struct Options {
  int64_t steps = 1000;
  int zero = 0;
  float lr = 3e-4f;
  double dropout = 0.1;
  double scale = 1;
  float any_float = 0;
  int any_int = 0;
  bool deterministic = false;
  std::string data;
  std::string model = "nano";
  Schedule schedule = Schedule::kCosine;
  int64_t device_memory = int64_t{1} << 30;
  int64_t threads = 0;
};

ConfigSpec describe(Options& c) {
  ConfigSpec spec("train", "a program for tests");
  spec.section("Run");
  spec.add("steps", c.steps, "optimizer steps", {.min = 1});
  spec.add("zero", c.zero, "what is sharded", {.min = 0, .max = 3});
  spec.add("data", c.data, "training data");
  spec.section("Numbers");
  spec.add("lr", c.lr, "peak learning rate", {.min = 0, .exclude_min = true});
  spec.add("dropout", c.dropout, "drop rate", {.min = 0, .max = 1, .exclude_max = true});
  spec.add("scale", c.scale, "any number");
  spec.add("any-float", c.any_float, "any float");
  spec.add("any-int", c.any_int, "any int");
  spec.add("deterministic", c.deterministic, "no atomics");
  spec.add_choice("model", c.model, {"nano", "gpt2-124m"}, "preset");
  spec.add_choice("schedule", c.schedule,
                  {{"cosine", Schedule::kCosine},
                   {"linear", Schedule::kLinear},
                   {"constant", Schedule::kConstant}},
                  "learning rate over time");
  spec.add_size("device-memory", c.device_memory, "budget", {.min = 1 << 20});
  spec.add("threads", c.threads, "CPU threads", {.min = 1, .help = {.default_text = "all"}});
  return spec;
}

ParseResult parse(ConfigSpec& spec, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train");
  return parse_config(spec, static_cast<int>(arguments.size()), arguments.data());
}

Options options_of(const std::vector<const char*>& arguments) {
  Options options;
  ConfigSpec spec = describe(options);
  const ParseResult result = parse(spec, arguments);
  CHECK_FALSE(result.should_exit);
  CHECK(result.output.empty());
  return options;
}

std::string complaint(const std::vector<const char*>& arguments) {
  return message_of<ConfigError>([&] { options_of(arguments); });
}

// Parses a config file with the content `text` and then `flags`, and returns the options.
Options options_of_file(const std::string& text, std::vector<const char*> flags = {}) {
  const test::TempDir dir;
  const std::string path = dir.write("run.json", text);
  flags.insert(flags.begin(), {"--config", path.c_str()});
  return options_of(flags);
}

std::string file_complaint(const std::string& text) {
  return message_of<ConfigError>([&] { options_of_file(text); });
}

}  // namespace

TEST_CASE("without arguments the defaults stay", "[config]") {
  const Options options = options_of({});
  CHECK(options.steps == 1000);
  CHECK(options.lr == 3e-4f);
  CHECK(options.model == "nano");
  CHECK(options.schedule == Schedule::kCosine);
}

TEST_CASE("a value follows its flag as the next argument or behind '='", "[config]") {
  const Options options =
      options_of({"--steps", "7", "--zero=2", "--lr", "6e-5", "--dropout=.25", "--scale", "-2.5",
                  "--any-int", "-3", "--data=a=b", "--model", "gpt2-124m", "--schedule=linear",
                  "--device-memory", "512MiB", "--deterministic"});
  CHECK(options.steps == 7);
  CHECK(options.zero == 2);
  CHECK(options.lr == 6e-5f);
  CHECK(options.dropout == 0.25);
  CHECK(options.scale == -2.5);
  CHECK(options.any_int == -3);
  CHECK(options.data == "a=b");
  CHECK(options.model == "gpt2-124m");
  CHECK(options.schedule == Schedule::kLinear);
  CHECK(options.device_memory == 512 << 20);
  CHECK(options.deterministic);
}

TEST_CASE("integers accept exponents when the value is an integer", "[config]") {
  CHECK(options_of({"--steps", "1e6"}).steps == 1000000);
  CHECK(options_of({"--device-memory", "1e7"}).device_memory == 10000000);
}

TEST_CASE("the last of equal flags wins, and the others are not even looked at", "[config]") {
  CHECK(options_of({"--steps", "5", "--steps=6"}).steps == 6);
  CHECK(options_of({"--steps", "x", "--steps", "5"}).steps == 5);
  CHECK_FALSE(options_of({"--deterministic", "--deterministic=false"}).deterministic);
}

TEST_CASE("an unknown flag names the nearest one", "[config]") {
  CHECK(complaint({"--zeor", "1"}) == "unknown flag --zeor; did you mean --zero?");
  CHECK(complaint({"--zeor=1"}) == "unknown flag --zeor; did you mean --zero?");
  CHECK(complaint({"--device_memory", "1"}) ==
        "unknown flag --device_memory; did you mean --device-memory?");
  CHECK(complaint({"-steps", "1"}) == "unknown flag -steps; did you mean --steps?");
  CHECK(complaint({"--confg", "f"}) == "unknown flag --confg; did you mean --config?");
  CHECK(complaint({"--xyzzyplugh"}) == "unknown flag --xyzzyplugh; train --help lists the flags");
  CHECK(contains(complaint({"--="}), "unknown flag --"));
  CHECK(contains(complaint({"---"}), "unknown flag ---"));
}

TEST_CASE("another trainer's name of an option is answered with the option", "[config]") {
  CHECK(complaint({"--learning-rate", "1"}) == "unknown flag --learning-rate; use --lr");
  CHECK(complaint({"--learning_rate=1"}) == "unknown flag --learning_rate; use --lr");
  CHECK(contains(complaint({"--max-steps", "3"}), "unknown flag --max-steps; use --steps"));
  CHECK(contains(complaint({"--fsdp"}), "use --zero 3"));
  CHECK(file_complaint(R"({"learning_rate": 1})")
            .ends_with("run.json: unknown key \"learning_rate\"; use --lr"));
  // Here the message suggests no other flag, because this program lacks Shale's flag for tensor
  // parallelism.
  CHECK(contains(complaint({"--tensor-model-parallel-size", "2"}), "train --help lists the flags"));
}

TEST_CASE("another trainer's name of a value is answered with the value", "[config]") {
  std::string device = "auto";
  const auto complaint_of = [&](std::vector<const char*> arguments) {
    ConfigSpec spec("train", "a program for tests");
    spec.add_choice("device", device, {"auto", "cpu", "cuda"}, "where to compute");
    return message_of<ConfigError>([&] { parse(spec, std::move(arguments)); });
  };
  CHECK(contains(complaint_of({"--device", "gpu"}), "found 'gpu'; use --device cuda"));
  CHECK(contains(complaint_of({"--device", "cuda:0"}), "CUDA_VISIBLE_DEVICES"));
  CHECK(complaint_of({"--device", "abacus"}).ends_with("found 'abacus'"));
  CHECK(contains(complaint_of({"--gpus", "2"}), "unknown flag --gpus"));
  const test::TempDir dir;
  CHECK(contains(complaint_of({"--config", dir.write("run.json", R"({"device": "gpu"})").c_str()}),
                 "use --device cuda"));
}

TEST_CASE("an argument without a flag may be the data", "[config]") {
  std::string data;
  ConfigSpec spec("train", "a program for tests");
  spec.add("data", data, "what to read", {.required = true, .is_path = true});
  CHECK(message_of<ConfigError>([&] { parse(spec, {"x.txt"}); }) ==
        "unexpected argument 'x.txt'; did you mean --data x.txt?");
  CHECK(message_of<ConfigError>([&] {
          parse(spec, {"--data", "y.txt", "x.txt"});
        }) == "unexpected argument 'x.txt'");
}

TEST_CASE("a wrong value names the flag, what was expected and what was found", "[config]") {
  CHECK(complaint({"--steps", "abc"}) == "--steps: expected an integer of at least 1, found 'abc'");
  CHECK(complaint({"--steps=0"}) == "--steps: expected an integer of at least 1, found '0'");
  CHECK(complaint({"--steps="}) == "--steps: expected an integer of at least 1, found ''");
  CHECK(complaint({"--steps", "1.5"}) == "--steps: expected an integer of at least 1, found '1.5'");
  CHECK(complaint({"--zero", "4"}) == "--zero: expected an integer from 0 to 3, found '4'");
  CHECK(complaint({"--zero", "-1"}) == "--zero: expected an integer from 0 to 3, found '-1'");
  CHECK(complaint({"--any-int", "3e9"}) ==
        "--any-int: expected an integer of 32 bits, found '3e9'");
  CHECK(complaint({"--lr", "0"}) == "--lr: expected a number above 0, found '0'");
  CHECK(complaint({"--lr", "nan"}) == "--lr: expected a number above 0, found 'nan'");
  CHECK(complaint({"--lr", "inf"}) == "--lr: expected a number above 0, found 'inf'");
  CHECK(complaint({"--dropout", "1"}) == "--dropout: expected a number in [0, 1), found '1'");
  CHECK(complaint({"--scale", "1e400"}) == "--scale: expected a finite number, found '1e400'");
  CHECK(complaint({"--any-float", "1e39"}) ==
        "--any-float: expected a finite number that fp32 can hold, found '1e39'");
  CHECK(contains(complaint({"--any-float", "1e-60"}), "found '1e-60'"));
  CHECK(complaint({"--deterministic=maybe"}) ==
        "--deterministic: expected true or false, found 'maybe'");
  CHECK(complaint({"--model", "gpt3"}) == "--model: expected one of nano, gpt2-124m, found 'gpt3'");
  CHECK(complaint({"--schedule", "Cosine"}) ==
        "--schedule: expected one of cosine, linear, constant, found 'Cosine'");
  CHECK(complaint({"--device-memory", "512M"}) ==
        "--device-memory: expected a size of at least 1MiB, such as 512MiB, 2GiB or 1e6, "
        "found '512M'");
  CHECK(contains(complaint({"--device-memory", "1KiB"}), "at least 1MiB"));
}

TEST_CASE("an option that was removed, or one of its values, is refused with what replaces it",
          "[config]") {
  std::string optimizer = "adamw";
  const auto complaint_of = [&](std::vector<const char*> arguments) {
    ConfigSpec spec("train", "a program for tests");
    spec.add_choice("optimizer", optimizer, {"adamw", "1bit-adam"}, "what steps");
    return message_of<ConfigError>([&] { parse(spec, std::move(arguments)); });
  };
  const std::string value = "--optimizer 01-adam was removed; use --optimizer 1bit-adam";
  CHECK(complaint_of({"--optimizer", "01-adam"}) == value);
  CHECK(complaint_of({"--optimizer=01-adam"}) == value);
  CHECK(contains(complaint_of({"--optimizer", "02-adam"}), "expected one of adamw, 1bit-adam"));
  const std::string option = "--local-most was removed; use --outer-every";
  CHECK(complaint_of({"--local-most", "4"}) == option);
  CHECK(complaint_of({"--local-most=4"}) == option);
  CHECK(contains(complaint_of({"--local-moss", "4"}), "unknown flag --local-moss"));
  const auto complaint_of_file = [&](const std::string& text) {
    const test::TempDir dir;
    return complaint_of({"--config", dir.write("run.json", text).c_str()});
  };
  CHECK(contains(complaint_of_file(R"({"optimizer": "01-adam"})"),
                 "run.json: optimizer \"01-adam\" was removed; use --optimizer 1bit-adam"));
  CHECK(contains(complaint_of_file(R"({"local_most": 8})"),
                 "run.json: local_most was removed; use --outer-every"));
}

TEST_CASE("a file may have what an option that was removed is without its flag", "[config]") {
  CHECK(options_of_file(R"({"local_most": 4, "local_doubling": null, "steps": 5})").steps == 5);
}

TEST_CASE("an option of a program is no removed one of another", "[config]") {
  int64_t most = 1;
  ConfigSpec spec("other", "a program for tests");
  spec.add("local-most", most, "a name that was used before");
  parse(spec, {"--local-most", "3"});
  CHECK(most == 3);
  spec.read_json(R"({"local_most": 4})", "run.json");
  CHECK(most == 4);
}

TEST_CASE("messages quote the start of endless input only", "[config]") {
  const std::string endless(100000, 'x');
  CHECK(complaint({"--steps", endless.c_str()}).size() < 200);
  CHECK(complaint({endless.c_str()}).size() < 200);
  CHECK(complaint({("--" + endless).c_str()}).size() < 200);
  CHECK(file_complaint("{\"steps\": \"" + endless + "\"}").size() < 300);
  CHECK(file_complaint("{\"" + endless + "\": 1}").size() < 300);
  CHECK(file_complaint("{\"steps\": \"" + endless).size() < 500);
}

TEST_CASE("a flag without its value is an error, and takes nothing from its neighbours",
          "[config]") {
  CHECK(complaint({"--steps"}) == "--steps: expected an integer of at least 1, found no value");
  CHECK(complaint({"--data", "--zero", "1"}) ==
        "--data: expected text, found the flag --zero; write --data=--zero if that is the value");
  CHECK(options_of({"--data=--zero", "--zero=1"}).data == "--zero");
  CHECK(options_of({"--data=", "--zero", "1"}).zero == 1);
}

TEST_CASE("an argument that belongs to no flag is an error", "[config]") {
  CHECK(complaint({"file.txt"}) == "unexpected argument 'file.txt'");
  CHECK(complaint({"--deterministic", "false"}) ==
        "unexpected argument 'false'; did you mean --deterministic=false?");
  CHECK(complaint({"--", "--steps"}) == "unexpected argument '--steps'");
}

TEST_CASE("positional arguments go to their fields in order", "[config]") {
  std::string from, to;
  bool verbose = false;
  ConfigSpec spec("tool", "copies");
  spec.add("verbose", verbose, "tell more");
  spec.add_positional("from", from, "source", {.required = true});
  spec.add_positional("to", to, "target");
  SECTION("mixed with flags") {
    parse(spec, {"a", "--verbose", "-1"});
    CHECK(from == "a");
    CHECK(to == "-1");
    CHECK(verbose);
    CHECK(spec.was_set("to"));
  }
  SECTION("behind -- even those that look like flags") {
    parse(spec, {"--", "--verbose", "-x"});
    CHECK(from == "--verbose");
    CHECK(to == "-x");
    CHECK_FALSE(verbose);
  }
  SECTION("one too many is an error, so is a missing one") {
    CHECK(message_of<ConfigError>([&] {
            parse(spec, {"a", "b", "c"});
          }) == "unexpected argument 'c'");
    CHECK(message_of<ConfigError>([&] { parse(spec, {"--verbose"}); }) ==
          "FROM is required: source");
    CHECK(contains(message_of<ConfigError>([&] {
                     parse(spec, {"--from", "a"});
                   }),
                   "unknown flag --from"));
  }
  SECTION("help shows them") {
    CHECK(contains(spec.help(), "Usage: tool [FLAGS] FROM [TO]\n"));
  }
}

TEST_CASE("a required flag is asked for by name, but not for --print-config", "[config]") {
  std::string data;
  ConfigSpec spec("train", "trains");
  spec.add("data", data, "training data", {.required = true, .help = {.metavar = "PATH"}});
  CHECK(message_of<ConfigError>([&] { parse(spec, {}); }) == "--data is required: training data");
  CHECK(contains(spec.help(), "Usage: train --data PATH [FLAGS]\n"));
  CHECK(parse(spec, {"--print-config"}).should_exit);
  CHECK_FALSE(parse(spec, {"--data", "x"}).should_exit);
  CHECK(data == "x");
}

TEST_CASE("a path that is empty is refused as a flag, and left alone in a file", "[config]") {
  std::string data, init, out = "out";
  ConfigSpec spec("train", "trains");
  spec.add("data", data, "training data", {.required = true, .is_path = true});
  spec.add("init", init, "a model", {.is_path = true});
  spec.add("out", out, "results", {.is_path = true});
  // --print-config writes "" for a path that is not set, so a config file may contain it.
  spec.read_json(R"({"data": "", "init": ""})", "file.json");
  CHECK(init.empty());
  CHECK(contains(message_of<ConfigError>([&] { parse(spec, {}); }), "--data is required"));
  CHECK_THROWS_AS(spec.read_json(R"({"out": ""})", "file.json"), ConfigError);
  for (const char* flag : {"--data", "--init", "--out", "--config"}) {
    CHECK(message_of<ConfigError>([&] {
            parse(spec, {"--data", "x", flag, ""});
          }) ==
          cat(flag, ": expected a path: not empty, and without control characters, found ''"));
    for (const char* bad : {"a\nb", "a\x1b[31mb", "\x7f"}) {
      const std::string message = message_of<ConfigError>([&] {
        parse(spec, {"--data", "x", flag, bad});
      });
      CHECK(message.find_first_of("\n\x1b\x7f") == message.npos);
    }
  }
}

TEST_CASE("was_set tells a default from the same value given", "[config]") {
  Options options;
  ConfigSpec spec = describe(options);
  const test::TempDir dir;
  const std::string path = dir.write("run.json", R"({"model": "nano"})");
  parse(spec, {"--steps", "1000", "--config", path.c_str()});
  CHECK(spec.was_set("steps"));
  CHECK(spec.was_set("model"));
  CHECK_FALSE(spec.was_set("zero"));
  CHECK_THROWS_AS(spec.was_set("zeor"), InternalError);
}

TEST_CASE("an option that needs another is refused without it", "[config]") {
  int64_t zero = 0, ahead = 1, depth = 0;
  const auto message = [&](std::vector<const char*> flags) {
    zero = 0, ahead = 1, depth = 0;
    ConfigSpec spec("train", "trains");
    spec.add("zero", zero, "stage");
    spec.add("ahead", ahead, "units");
    spec.add("depth", depth, "of what is ahead");
    spec.needs("ahead", "--zero 3 or --elsewhere");
    spec.needs("depth", "--elsewhere");  // this program lacks --elsewhere
    try {
      parse(spec, flags);
      return std::string();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  CHECK(message({"--ahead", "2", "--zero", "2"}) ==
        "--ahead has no effect without --zero 3; add it, or leave out --ahead");
  CHECK(message({"--ahead", "2", "--zero", "3", "--depth", "1"}).empty());
  CHECK(message({"--ahead", "1"}).empty());
  CHECK(message({"--ahead", "2", "--print-config"}).empty());
}

TEST_CASE("a config file sets what flags set, and flags win", "[config]") {
  const std::string text = R"({"steps": 5, "lr": 0.5, "device_memory": "2MiB", "scale": 3,
                               "deterministic": true, "schedule": "constant", "data": "dir"})";
  const Options options = options_of_file(text, {"--steps", "6", "--deterministic=false"});
  CHECK(options.steps == 6);
  CHECK(options.lr == 0.5f);
  CHECK(options.device_memory == 2 << 20);
  CHECK(options.scale == 3);
  CHECK_FALSE(options.deterministic);
  CHECK(options.schedule == Schedule::kConstant);
  CHECK(options.data == "dir");
  CHECK(options_of_file(R"({"device_memory": 2097152})").device_memory == 2 << 20);
  CHECK(options_of_file("{}").steps == 1000);
}

TEST_CASE("a config file with an unknown key names the nearest one", "[config]") {
  CHECK(contains(file_complaint(R"({"zeor": 1})"),
                 "run.json: unknown key \"zeor\"; did you mean \"zero\"?"));
  CHECK(contains(file_complaint(R"({"device-memory": 1})"), "did you mean \"device_memory\"?"));
  // These options exist only on the command line, not in config files.
  CHECK(contains(file_complaint(R"({"print_config": true})"), "unknown key \"print_config\""));
  CHECK(contains(file_complaint(R"({"config": "x"})"), "unknown key \"config\""));
  CHECK(contains(file_complaint(R"({"": 1})"), "unknown key \"\""));
}

TEST_CASE("a config file with a wrong type names it", "[config]") {
  const auto [text, complaint] = GENERATE(table<std::string, std::string>({
      {R"({"steps": 1.5})", "steps: expected an integer of at least 1, found the number 1.5"},
      {R"({"steps": 1e3})", "found the number 1000.0"},
      {R"({"steps": "5"})", "found the text \"5\""},
      {R"({"steps": true})", "found true"},
      {R"({"steps": null})", "found null"},
      {R"({"steps": [5]})", "found an array"},
      {R"({"steps": {"a": 1}})", "found an object"},
      {R"({"steps": 0})", "steps: expected an integer of at least 1, found 0"},
      {R"({"steps": 9223372036854775808})", "found 9223372036854775808"},
      {R"({"steps": 99999999999999999999})", "expected an integer of at least 1"},
      {R"({"zero": 4})", "zero: expected an integer from 0 to 3, found 4"},
      {R"({"any_int": 3000000000})", "any_int: expected an integer of 32 bits, found 3000000000"},
      {R"({"lr": "0.1"})", "lr: expected a number above 0, found the text \"0.1\""},
      {R"({"lr": -1})", "found -1"},
      {R"({"any_float": 1e39})", "fp32 can hold, found the number 1e+39"},
      {R"({"deterministic": 1})", "deterministic: expected true or false, found 1"},
      {R"({"deterministic": "true"})", "found the text \"true\""},
      {R"({"data": 5})", "data: expected text, found 5"},
      {R"({"data": "a\u0000b"})", R"(data: expected text, found the text "a\u0000b")"},
      {R"({"model": 1})", "model: expected one of nano, gpt2-124m, found 1"},
      {R"({"model": "gpt3"})", "found the text \"gpt3\""},
      {R"({"device_memory": 1.5e9})", "device_memory: expected a size of at least 1MiB"},
      {R"({"device_memory": -1})", "found -1"},
      {R"({"device_memory": "lots"})", "found the text \"lots\""},
  }));
  CAPTURE(text);
  CHECK(contains(file_complaint(text), complaint));
}

TEST_CASE("a config file must be one small JSON object with distinct keys", "[config]") {
  CHECK(contains(file_complaint(R"({"steps": 1, "steps": 2})"), "the key 'steps' appears twice"));
  CHECK(contains(file_complaint(R"({"steps": 1} x)"), "not valid JSON"));
  CHECK(contains(file_complaint(R"({"steps": 1,})"), "not valid JSON"));
  CHECK(contains(file_complaint(""), "not valid JSON"));
  CHECK(contains(file_complaint("[1]"), "expected an object of options, found an array"));
  CHECK(contains(file_complaint("{\"data\": " + std::string(65, '[')), "nested deeper than 64"));
  CHECK(contains(file_complaint("{}" + std::string(1 << 20, ' ')), "larger than 1048576 bytes"));
}

TEST_CASE("a config file that does not exist is missing input", "[config]") {
  const test::TempDir dir;
  const std::string path = dir.file("absent.json");
  CHECK(contains(message_of<MissingInputError>([&] {
                   options_of({"--config", path.c_str()});
                 }),
                 path));
  CHECK(contains(complaint({"--config", dir.path().c_str()}), "directory"));
}

TEST_CASE("a wrong value in the file is an error even if a flag replaces it", "[config]") {
  CHECK_THROWS_AS(options_of_file(R"({"steps": 0})", {"--steps", "5"}), ConfigError);
}

TEST_CASE("--print-config prints what --config reads back to the same values", "[config]") {
  Options options;
  ConfigSpec spec = describe(options);
  const ParseResult result =
      parse(spec, {"--steps=77", "--lr", "0.1", "--dropout=0.3", "--any-float=1.1", "--data",
                   "with \"quotes\"\n\\", "--schedule", "linear", "--deterministic",
                   "--device-memory=3MiB", "--any-int=-5", "--print-config"});
  CHECK(result.should_exit);
  CHECK(contains(result.output, "\n  \"lr\": 0.1,\n"));
  CHECK(contains(result.output, "\n  \"device_memory\": 3145728,\n"));

  const Options again = options_of_file(result.output);
  CHECK(again.steps == 77);
  CHECK(again.lr == 0.1f);
  CHECK(again.dropout == 0.3);
  CHECK(again.any_float == 1.1f);
  CHECK(again.data == "with \"quotes\"\n\\");
  CHECK(again.schedule == Schedule::kLinear);
  CHECK(again.deterministic);
  CHECK(again.device_memory == 3 << 20);
  CHECK(again.any_int == -5);
  CHECK(again.threads == 0);

  Options third;
  ConfigSpec third_spec = describe(third);
  const test::TempDir dir;
  const std::string path = dir.write("run.json", result.output);
  CHECK(parse(third_spec, {"--config", path.c_str(), "--print-config"}).output == result.output);
}

TEST_CASE("minus zero is zero, whose text reads back the same", "[config]") {
  for (const char* text : {"-0", "-0.0", "-13e-400"}) {
    Options options;
    ConfigSpec spec = describe(options);
    spec.read_json(cat("{\"any_float\": ", text, "}"), "minus");
    CAPTURE(text);
    CHECK_FALSE(std::signbit(options.any_float));
    CHECK(contains(spec.to_json(), "\"any_float\": 0,"));
  }
}

TEST_CASE("a default found at run time is null in JSON until it is set", "[config]") {
  Options options;
  ConfigSpec spec = describe(options);
  CHECK(contains(spec.to_json(), "\"threads\": null"));
  const test::TempDir dir;
  const std::string path = dir.write("run.json", R"({"threads": null})");
  parse(spec, {"--config", path.c_str()});
  CHECK_FALSE(spec.was_set("threads"));
  parse(spec, {"--threads", "2"});
  CHECK(contains(spec.to_json(), "\"threads\": 2"));
  CHECK(complaint({"--threads", "0"}) == "--threads: expected an integer of at least 1, found '0'");
}

TEST_CASE("--print-config complains about wrong values like a run", "[config]") {
  CHECK(contains(complaint({"--print-config", "--steps", "0"}), "--steps"));
}

TEST_CASE("--help and --version win over what would be an error", "[config]") {
  Options options;
  ConfigSpec spec = describe(options);
  const auto arguments =
      GENERATE(std::vector<const char*>{"--help"}, std::vector<const char*>{"-h"},
               std::vector<const char*>{"--steps", "0", "--zeor", "--help"},
               std::vector<const char*>{"--help", "all"}, std::vector<const char*>{"--help=all"},
               std::vector<const char*>{"--help", "--steps", "0"});
  const ParseResult help = parse(spec, arguments);
  CHECK(help.should_exit);
  CHECK(help.output == spec.help());
  const ParseResult version = parse(spec, {"--steps", "0", "--version"});
  CHECK(version.should_exit);
  CHECK(version.output.starts_with("train (Shale) "));
  CHECK(options.steps == 1000);
}

TEST_CASE("a declaration that cannot work is a bug that is named", "[config]") {
  int field = 5;
  std::string text = "x";
  ConfigSpec spec("p", "s");
  spec.add("taken", field, "");
  CHECK_THROWS_AS(spec.add("taken", field, ""), InternalError);
  CHECK_THROWS_AS(spec.add("help", field, ""), InternalError);
  CHECK_THROWS_AS(spec.add("config", field, ""), InternalError);
  CHECK_THROWS_AS(spec.add("", field, ""), InternalError);
  CHECK_THROWS_AS(spec.add("--a", field, ""), InternalError);
  CHECK_THROWS_AS(spec.add("a_b", field, ""), InternalError);
  CHECK_THROWS_AS(spec.add("low", field, "", {.min = 6}), InternalError);
  CHECK_THROWS_AS(spec.add_choice("choice", text, {"a", "b"}, ""), InternalError);
  auto schedule = static_cast<Schedule>(9);
  CHECK_THROWS_AS(spec.add_choice("s", schedule, {{"linear", Schedule::kLinear}}, ""),
                  InternalError);
}

}  // namespace shale
