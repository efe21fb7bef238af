// shale config: converts options of other trainers.
#include <array>
#include <cstdio>
#include <set>
#include <string>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/models/language/config.h"
#include "shale/models/tools/config_import.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

enum class Trainer { kAuto, kDeepSpeed, kTorchTitan, kTransformers };

std::set<std::string> words_of(const std::string& list) {
  std::set<std::string> words;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) words.insert(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Converts the value of a dotted option to TOML, whose number syntax is stricter: .5 becomes 0.5.
std::string toml_value(const std::string& word) {
  if (word == "true" || word == "false") return word;
  const bool is_real = word.find_first_of(".eE") != word.npos;
  if (const auto number = is_real ? std::nullopt : parse_int(word)) return cat(*number);
  if (const auto number = parse_real(word)) return Json(*number).dump();
  return cat("\"", word, "\"");
}

// Parses one dotted option per line, "--training.steps=100" or "--training.steps 100".
Json parse_dotted(std::string_view text, const std::string& source) {
  std::string toml;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(text.substr(begin, end - begin));
    begin = end + 1;
    if (!line.starts_with("--")) {
      toml += "\n";
      continue;
    }
    line.erase(0, 2);
    if (const size_t sign = line.find_first_of("= "); sign != line.npos) {
      line = cat(line.substr(0, sign), " = ", toml_value(line.substr(sign + 1)));
    } else {
      line += " = true";
    }
    toml += line + "\n";
  }
  return parse_toml(toml, source);
}

Json read(const std::string& file) {
  const JsonLimits limits;
  const std::string text = read_text_file(file, limits.max_bytes);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != text.npos && text[first] == '{') {
    return Json::parse(text, limits, file);
  }
  return text.starts_with("--") ? parse_dotted(text, file) : parse_toml(text, file);
}

Trainer trainer_of(const Json& theirs, const std::string& file) {
  const auto has = [&theirs](const char* key) { return theirs.contains(key); };
  if (has("training") || has("lr_scheduler") || has("parallelism")) return Trainer::kTorchTitan;
  if (has("zero_optimization") || has("train_micro_batch_size_per_gpu") ||
      has("train_batch_size")) {
    return Trainer::kDeepSpeed;
  }
  if (has("learning_rate") || has("per_device_train_batch_size") || has("output_dir")) {
    return Trainer::kTransformers;
  }
  throw ConfigError(cat(file, ": cannot tell which trainer the options are for; use --from"));
}

// Returns the converted options as JSON. Throws ConfigError if train_lm does not accept them.
std::string checked(const Json& options, const std::string& file) {
  std::string text = options.dump(2) + "\n";
  TrainConfig config;
  ConfigSpec spec("train_lm", "");
  describe(spec, config);
  spec.read_json(text, file);
  return text;
}

int run_import(int argc, const char* const* argv) {
  std::string file, waive, out;
  Trainer from = Trainer::kAuto;
  int64_t ranks = 0;
  ConfigSpec spec(
      "shale config import",
      "converts the options of DeepSpeed, torchtitan or transformers to those of train_lm");
  spec.add_positional("file", file,
                      "DeepSpeed JSON, torchtitan TOML (or its dotted options, one per line), or "
                      "TrainingArguments JSON",
                      {.required = true, .is_path = true});
  spec.section("Options");
  spec.add_choice("from", from,
                  {{"auto", Trainer::kAuto},
                   {"deepspeed", Trainer::kDeepSpeed},
                   {"torchtitan", Trainer::kTorchTitan},
                   {"transformers", Trainer::kTransformers}},
                  "trainer that the file is for; auto: recognized by its keys");
  spec.add("ranks", ranks, "number of ranks of the run, if batch sizes are per rank",
           {.min = 1, .help = {.default_text = "unknown"}});
  spec.add("waive", waive, "comma-separated keys to ignore if Shale has no counterpart",
           {.help = {.metavar = "KEY,..."}});
  spec.add("out", out, "file to write, for train_lm --config",
           {.is_path = true, .help = {.metavar = "FILE", .default_text = "standard output"}});
  if (parse_or_print(spec, argc, argv)) return 0;
  const Json theirs = read(file);
  if (from == Trainer::kAuto) from = trainer_of(theirs, file);
  ConfigImport in(theirs, ranks, words_of(waive));
  switch (from) {
    case Trainer::kDeepSpeed: import_deepspeed(in); break;
    case Trainer::kTorchTitan: import_torchtitan(in); break;
    default: import_trainer(in);
  }
  in.finish();
  for (const std::string& note : in.notes()) std::fprintf(stderr, "%s\n", printable(note).c_str());
  if (!in.problems().empty()) {
    std::string text;
    for (const std::string& problem : in.problems()) text += cat("\n  ", problem);
    const size_t count = in.problems().size();
    throw ConfigError(cat(file, ": ", count, count == 1 ? " option has" : " options have",
                          " no counterpart in Shale (--waive KEY drops one):", text));
  }
  const std::string options = checked(in.options(), file);
  if (out.empty()) {
    std::fputs(options.c_str(), stdout);
  } else {
    write_file_atomically(out, options);
    // Without --model, train_lm would use its smallest model.
    const bool has_model = in.is_set("model");
    std::printf("train_lm --config %s --model %s --data DATA%s\n", out.c_str(),
                has_model ? in.option("model").text().c_str() : "MODEL",
                has_model ? "" : "   (or --init FOLDER in place of --model)");
  }
  return 0;
}

}  // namespace

int run_config(int argc, const char* const* argv) {
  static constexpr std::array kActions = {
      Tool{"import", "converts the options of another trainer", run_import},
  };
  return run_tool({.program = "shale config",
                   .summary = "converts option files of other trainers to files for --config",
                   .what = "action",
                   .closing = "",
                   .tools = kActions},
                  argc, argv);
}

}  // namespace shale::models
