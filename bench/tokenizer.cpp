// Times a tokenizer on one thread, for a text and for a text without word boundaries, which is the
// worst case for merging. bench/peers/tokenizer_cpu.py compares it with tiktoken.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::bench {
namespace {

struct BenchConfig {
  std::string tokenizer, text, json;
  int repeats = 5;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add("tokenizer", c.tokenizer, "tokenizer.json, tiktoken file or SentencePiece model",
           {.required = true, .is_path = true, .help = {.metavar = "FILE"}});
  spec.add("text", c.text, "text file to tokenize, as one document",
           {.required = true, .is_path = true, .help = {.metavar = "FILE"}});
  spec.add("repeats", c.repeats, "number of runs; the median is reported", {.min = 1});
  spec.add("json", c.json, "JSON file for the results",
           {.is_path = true, .help = {.metavar = "FILE"}});
}

struct Results {
  Table table{{"text", "bytes", "tokens", "MB/s", "tokens/s"}};
  Json rows = Json::array();

  void add(const char* what, size_t bytes, size_t tokens, const Samples& times) {
    const double seconds = times.median();
    table.add({what, std::to_string(bytes), std::to_string(tokens),
               fixed(static_cast<double>(bytes) / seconds / 1e6, 1),
               short_number(static_cast<double>(tokens) / seconds)});
    rows.push_back({{"text", what},
                    {"bytes", bytes},
                    {"tokens", tokens},
                    {"seconds", seconds},
                    {"seconds_min", times.min()}});
  }
};

// The first round fills the encoder's cache, and does not count.
void measure(const char* what, TokenEncoder& encoder, std::string_view text, int repeats,
             Results& results) {
  Samples times;
  std::vector<int32_t> tokens;
  for (int round = 0; round <= repeats; ++round) {
    tokens.clear();
    const double seconds = time_once([&] { encoder.append(text, {}, tokens); });
    if (round > 0) times.add(seconds);
  }
  results.add(what, text.size(), tokens.size(), times);
}

int run(int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_tokenizer", "times a tokenizer on one thread");
  describe(spec, config);
  if (parse_or_print(spec, argc, argv)) return 0;
  const auto stored = read_tokenizer(config.tokenizer);
  const MappedFile file(config.text);
  const std::string text(file.text());
  file.check();
  TokenEncoder encoder(stored->tokenizer);
  Results results;
  measure("the file", encoder, text, config.repeats, results);
  std::string letters;
  while (letters.size() < size_t{1} << 20) letters += "abcdefghijklmnopqrstuvwxyz";
  measure("a megabyte of letters", encoder, letters, config.repeats, results);
  const Machine machine = describe_machine();
  std::printf("%s, one thread; %s\n%s", config.tokenizer.c_str(), summary(machine).c_str(),
              results.table.text().c_str());
  const Json options = {{"tokenizer", config.tokenizer}, {"text", config.text}};
  write_results(config.json, "bench_tokenizer", machine, options, results.rows);
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::bench::run_program([&] { return shale::bench::run(argc, argv); });
}
