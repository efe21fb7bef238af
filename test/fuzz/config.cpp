// Input that starts with '{' is the text of a --config file; other input is a command line with one
// argument per line.
#include "shale/base/config.h"

#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

enum class Decay { kCosine, kLinear };

struct Options {
  int threads = 0;
  int64_t steps = 10;
  int64_t memory = 0;
  float lr = 3e-4f;
  double fraction = 0.1;
  bool quiet = false;
  std::string data;
  std::string device = "auto";
  Decay decay = Decay::kCosine;
  std::string input;
};

ConfigSpec describe(Options& options) {
  ConfigSpec spec("fuzz", "takes anything");
  spec.add("threads", options.threads, "t", {.min = 1, .help = {.default_text = "all"}});
  spec.add("steps", options.steps, "s", {.min = 0});
  spec.add_size("memory", options.memory, "m", {.min = 0});
  spec.add("lr", options.lr, "l");
  spec.add("fraction", options.fraction, "f", {.min = 0, .max = 1, .exclude_max = true});
  spec.add("quiet", options.quiet, "q");
  spec.add("data", options.data, "d");
  spec.add_choice("device", options.device, {"auto", "cpu", "cuda"}, "d");
  spec.add_choice("decay", options.decay, {{"cosine", Decay::kCosine}, {"linear", Decay::kLinear}},
                  "d");
  spec.add_positional("input", options.input, "i");
  return spec;
}

void read_file(std::string_view text) {
  Options options;
  ConfigSpec spec = describe(options);
  if (!fuzz::accepts<ConfigError>([&] { spec.read_json(text, "options.json"); })) return;
  fuzz::require(options.steps >= 0 && options.memory >= 0, "limits hold");
  fuzz::require(options.fraction >= 0 && options.fraction < 1, "limits hold");
  fuzz::require(options.data.find('\0') == std::string::npos, "texts have no NUL");
  Options again;
  ConfigSpec again_spec = describe(again);
  again_spec.read_json(spec.to_json(), "printed");
  fuzz::require(again_spec.to_json() == spec.to_json(), "what is printed reads back the same");
}

void read_arguments(std::string_view text) {
  std::vector<std::string> arguments = {"fuzz"};
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    arguments.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--co")) return;  // skips --config, which would read a file
    argv.push_back(argument.c_str());
  }
  Options options;
  ConfigSpec spec = describe(options);
  fuzz::accepts<ConfigError>([&] {
    const ParseResult result = parse_config(spec, static_cast<int>(argv.size()), argv.data());
    fuzz::require(result.should_exit != result.output.empty(), "who exits says why");
    fuzz::require(options.steps >= 0 && options.memory >= 0, "limits hold");
  });
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = shale::fuzz::text_of(data, size);
  if (text.starts_with('{')) {
    shale::read_file(text);
  } else {
    shale::read_arguments(text);
  }
  return 0;
}
