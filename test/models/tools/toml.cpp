#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/tools/config_import.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

using test::contains;
using test::message_of;

std::string error_of(const std::string& text) {
  return message_of<DataError>([&] { parse_toml(text, "f.toml"); });
}

}  // namespace

TEST_CASE("a file of options becomes objects inside objects", "[toml]") {
  const Json job = parse_toml(R"(# Llama 3, 8B
[job]
dump_folder = "./outputs"
description = """
Llama 3 on \
    8 GPUs, "debug"
"""
config_file = 'C:\runs\llama3.toml'

[model.args]
rope.theta = 5e5   # a dotted key
rope."scaling factor" = 8
n_layers = 32

[training]
local_batch_size = 1
seq_len = 8_192
max_norm = 1.0
compile = true
mesh = { dp = -1, tp = 0x2 }
exclude = [
  "lr_scheduler",  # also over lines
  'optimizer',
]
)",
                              "f.toml");
  CHECK(job["job"]["dump_folder"] == "./outputs");
  CHECK(job["job"]["description"] == "Llama 3 on 8 GPUs, \"debug\"\n");
  CHECK(job["job"]["config_file"] == "C:\\runs\\llama3.toml");
  const Json& args = job["model"]["args"];
  CHECK(args["rope"]["theta"] == 5e5);
  CHECK(args["rope"]["scaling factor"] == 8);
  CHECK(args["n_layers"] == 32);
  const Json& training = job["training"];
  CHECK(training["seq_len"] == 8192);
  CHECK(training["seq_len"].is_integer());
  CHECK(training["max_norm"] == 1.0);
  CHECK(training["compile"] == true);
  CHECK(training["mesh"]["dp"] == -1);
  CHECK(training["mesh"]["tp"] == 2);
  CHECK(training["exclude"] == Json::array({"lr_scheduler", "optimizer"}));
}

TEST_CASE("arrays of tables, dates and nothing at all are read", "[toml]") {
  const Json read = parse_toml(R"(started = 2025-11-28T07:32:00Z
day = 2025-11-28
[[optimizers]]
name = "AdamW"
betas = [0.9, 0.95]
[[optimizers]]
name = "Muon"
[optimizers.groups]
lr = 2e-2
)",
                               "f.toml");
  CHECK(read["started"] == "2025-11-28T07:32:00Z");
  CHECK(read["day"] == "2025-11-28");
  CHECK(read["optimizers"].size() == 2);
  CHECK(read["optimizers"][0]["betas"] == Json::array({0.9, 0.95}));
  CHECK(read["optimizers"][1]["groups"]["lr"] == 2e-2);
  CHECK(parse_toml("# nothing\n", "f.toml") == Json::object());
}

TEST_CASE("what is no TOML is named by its line", "[toml]") {
  CHECK(contains(error_of("[training]\nsteps = \nseq_len = 1\n"), "f.toml:2: not valid TOML: "));
  CHECK(contains(error_of("steps = 1\nsteps = 2\n"), "f.toml:2: not valid TOML: "));
  CHECK(contains(error_of("steps = 1\nsteps = 2\n"), "cannot redefine existing integer 'steps'"));
  CHECK(contains(error_of("[a]\nb.c = 1\n[a.b]\nd = 1\n"), "f.toml:3: "));
  CHECK(contains(error_of("[a]\n\nname = \"llama3\nb = 1\n"), "f.toml:3: not valid TOML: "));
  CHECK(contains(error_of("name = 'llama3"), "f.toml:1: not valid TOML: "));
  CHECK(contains(error_of("x = \"\\q\""), "unknown escape sequence"));
  CHECK(contains(error_of("x = 99999999999999999999"), "f.toml:1: not valid TOML: "));
  CHECK(contains(error_of("x = \"\xff\""), "f.toml:1: not valid TOML: "));
  for (const char* text : {"[training\nx = 1", "x = \"\x01\"", "x = [1,", "x y = 1"}) {
    CHECK_FALSE(contains(error_of(text), "\n"));
  }
}

TEST_CASE("TOML that options cannot have is refused", "[toml]") {
  CHECK(error_of("[a]\nb = inf") == "f.toml:2: expected a finite number, found inf");
  CHECK(error_of("a = 1\nb = [2,\n nan]") == "f.toml:3: expected a finite number, found nan");
  const auto repeated = [](std::string_view part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  // Nesting depths: below the limit, above the limit, and too deep for the TOML parser itself.
  const auto lists = [&](int depth) {
    return cat("x = ", repeated("[", depth), repeated("]", depth));
  };
  CHECK(parse_toml(lists(60), "f.toml").contains("x"));
  CHECK(contains(error_of(lists(70)), "f.toml:1: expected at most 64 tables inside each other"));
  CHECK(contains(error_of(lists(100'000)), "f.toml:1: not valid TOML: "));
  const auto key = [&](int parts) { return cat(repeated("a.", parts - 1), "a"); };
  CHECK(parse_toml(cat(key(60), " = 1"), "f.toml").contains("a"));
  CHECK(contains(error_of(cat(key(70), " = 1")), "f.toml:1: expected at most 64 tables"));
  CHECK(error_of(cat("\n[", key(200'000), "]")) ==
        "f.toml:2: expected at most 128 dots, found more");
  // This text reaches the limit of nested tables and that of nested lists.
  const std::string inner = cat("{", key(129), " = [\n");
  CHECK(contains(error_of(cat("x = [\n", repeated(inner, 126), "1\n", repeated("]}\n", 126), "]")),
                 "expected at most 64 tables"));
}

}  // namespace shale::models
