#include <algorithm>
#include <array>
#include <sstream>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("help lists sections, values, ranges, units and defaults in columns", "[config]") {
  int64_t steps = 1000, threads = 0, memory = int64_t{2} << 30;
  double timeout = 600, rate = 0.1;
  bool quiet = false;
  std::string data, model = "nano", long_choice = "one";
  ConfigSpec spec("train_lm", "trains a language model");
  spec.example("train_lm --data corpus/");
  spec.section("Data");
  spec.add("data", data, "file or folder", {.required = true, .help = {.metavar = "PATH"}});
  spec.section("Nothing in it");
  spec.section("Run");
  spec.add("steps", steps, "optimizer steps", {.min = 1});
  spec.add("threads", threads, "CPU threads", {.help = {.default_text = "all cores"}});
  spec.add("timeout", timeout, "longest wait for other ranks",
           {.min = 1, .help = {.metavar = "SECONDS", .unit = "s"}});
  spec.add("rate", rate, "drop rate", {.min = 0, .max = 1, .exclude_max = true});
  spec.add("quiet", quiet, "print warnings only");
  spec.add_size("device-memory", memory, "budget");
  spec.add_choice("model", model, {"nano", "gpt2"}, "preset");
  spec.add_choice("long-choice", long_choice, {"one", "two-that-is-long", "three-that-is-long"},
                  "which");
  const std::string want =
      "train_lm: trains a language model\n"
      "\n"
      "Usage: train_lm --data PATH [FLAGS]\n"
      "\n"
      "Examples\n"
      "  train_lm --data corpus/\n"
      "\n"
      "Data\n"
      "  --data PATH           file or folder (required)\n"
      "\n"
      "Run\n"
      "  --steps N             optimizer steps (default 1000)\n"
      "  --threads N           CPU threads (default all cores)\n"
      "  --timeout SECONDS     longest wait for other ranks (default 600 s)\n"
      "  --rate X              drop rate (0 to less than 1; default 0.1)\n"
      "  --quiet               print warnings only\n"
      "  --device-memory SIZE  budget (default 2GiB)\n"
      "  --model nano|gpt2     preset (default nano)\n"
      "  --long-choice NAME    which (one, two-that-is-long, three-that-is-long;\n"
      "                        default one)\n"
      "\n"
      "Configuration\n"
      "  --config FILE         read options from a JSON file (keys are flag names with\n"
      "                        '_' for '-'); flags override it\n"
      "  --print-config        print all options as a file for --config and exit\n"
      "  --version             print the version and exit\n"
      "  --help [GROUP]        print help and exit; all: every flag; GROUP: one group;\n"
      "                        table: tab-separated\n";
  CHECK(spec.help() == want);
  CHECK(spec.help_about("") == want);
  CHECK(spec.help_about("all") == want);
  CHECK(spec.help_about("data") == "Data\n  --data PATH           file or folder (required)\n");
  CHECK(test::contains(test::message_of<ConfigError>([&] { spec.help_about("x"); }),
                       "found 'x'; groups are data, run, configuration"));
}

TEST_CASE("a long help begins with the basic options and the names of the groups", "[config]") {
  int fields[80] = {};
  ConfigSpec spec("p", "s");
  for (int i = 0; i < 80; ++i) {
    if (i == 0) spec.section("First part");
    if (i == 40) spec.section("First, and last");
    ConfigOption option = spec.add(cat("f", i), fields[i], "the text of --all, in many words");
    if (i % 40 == 3) option.basic("briefly");
  }
  const std::string text = spec.help_about("");
  CHECK(test::contains(text, "\nFlags to begin with\n  --f3 N          briefly (default 0)\n"));
  CHECK(test::contains(text,
                       "\nGroups, for --help GROUP: first-part, first-and-last, configuration\n"));
  CHECK(!test::contains(text, "--f4 "));
  CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
  CHECK(test::contains(spec.help_about("all"), "  --f4 N          the text of --all"));
  CHECK(spec.help_about("first-a").starts_with("First, and last\n  --f40 N "));
  CHECK(test::message_of<ConfigError>([&] { spec.help_about("first"); }) ==
        "--help: expected all, table or a group, found 'first'; groups are first-part, "
        "first-and-last, configuration");
}

TEST_CASE("no line of a help begins with a flag that another one's text names", "[config]") {
  int field = 0;
  ConfigSpec spec("program", "a summary");
  spec.add("long-enough-a-name", field,
           "words that come before --one and others --two and then more words --three, and so on "
           "--four");
  std::istringstream lines(spec.help());
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    const size_t begin = line.find_first_not_of(' ');
    CHECK((begin == 2 || line.find("--") == line.npos || line.find("--") != begin));
  }
}

TEST_CASE("options are printed as a table, a line each", "[config]") {
  int64_t steps = 10;
  bool quiet = false;
  std::string data, model = "nano", runs;
  ConfigSpec spec("shale report RUN...", "writes a page");
  spec.add_positional("run", runs, "a run", {.required = true, .is_path = true});
  spec.section("Data");
  spec.add("data", data, "file or folder", {.required = true, .is_path = true});
  spec.add("steps", steps, "optimizer steps");
  spec.add("quiet", quiet, "print warnings only");
  spec.add_choice("model", model, {"nano", "gpt2"}, "preset");
  const std::array arguments = {"", "--help", "table"};
  const ParseResult result = parse_config(spec, 3, arguments.data());
  CHECK(result.should_exit);
  const std::string want =
      "shale report\tsummary\t\t\t\twrites a page\t\n"
      "shale report\targument\tRUN\t\tFILE\ta run (required)\tOptions\n"
      "shale report\tvalue\t--data\tTEXT\tFILE\tfile or folder (required)\tData\n"
      "shale report\tvalue\t--steps\tN\t\toptimizer steps (default 10)\tData\n"
      "shale report\tflag\t--quiet\t\t\tprint warnings only\tData\n"
      "shale report\tvalue\t--model\tnano|gpt2\tnano gpt2\tpreset (default nano)\tData\n";
  CHECK(result.output.substr(0, want.size()) == want);
  CHECK(result.output.find("\tvalue\t--help\t[GROUP]\t") != result.output.npos);
}

TEST_CASE("help keeps within the width it is given", "[config]") {
  int field = 0;
  ConfigSpec spec("program", "a summary of many words that does not fit into one short line");
  spec.add("a-flag-with-a-name-that-is-wider-than-the-column", field, "its text is below it");
  spec.add("short", field, "words words words words words words words words words words words");
  const int columns = GENERATE(60, 80, 120);
  std::istringstream lines(spec.help(columns));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    CHECK(line.size() <= static_cast<size_t>(columns));
    CHECK((line.empty() || line.back() != ' '));
  }
  CHECK(count > 8);
  CHECK(spec.help().find("than-the-column N\n") != std::string::npos);
}

TEST_CASE("help survives widths that make no sense", "[config]") {
  const ConfigSpec spec("p", "s");
  CHECK(spec.help(0) == spec.help(1));
  CHECK(spec.help(-5) == spec.help(0));
  CHECK(spec.help(0).find("Usage: p [FLAGS]") != std::string::npos);
}

}  // namespace shale
