// shale tokenizer: trains tokenizers.
#include <array>
#include <cstdio>
#include <mutex>
#include <string>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/stop_signals.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale::models {
namespace {

using tokenizer_internal::SplitPattern;

struct TrainRequest {
  std::vector<CorpusFile> inputs;
  std::string field = "text", special = "<|endoftext|>", out;
  BpeTrainerOptions trainer;
  int threads = 0;
};

void check_stop() {
  if (StopSignals::received() == 0) return;
  throw ErrorWithCode<ExitCode::kInterrupted>(
      "shale tokenizer train: stopped by a signal; nothing was written");
}

// Counts pieces of text on all threads. The sums do not depend on which thread counts what.
class Counter {
 public:
  explicit Counter(const TrainRequest& request)
      : request_(request), reader_(request.inputs, tokenizer_internal::find_line_cut) {}

  PieceCounts count() {
    const auto workers = static_cast<size_t>(request_.threads);
    in_parallel(workers, workers, [this](size_t, size_t) { work(); });
    return std::move(counts_);
  }

 private:
  void work() {
    PieceCounts counts;
    DocumentBatch batch;
    while (take(batch)) {
      const CorpusFile& file = request_.inputs[static_cast<size_t>(batch.begin.file)];
      for_each_document(batch, file, request_.field, [&](std::string_view text) {
        count_pieces(text, request_.trainer.pattern, counts);
      });
      // Keeps the memory of the thread's own counts small.
      if (counts.size() > kMostPieces) add(counts);
    }
    add(counts);
  }
  void add(PieceCounts& counts) {
    const std::lock_guard lock(mutex_);
    for (const auto& [piece, count] : counts) counts_[piece] += count;
    counts.clear();
  }
  bool take(DocumentBatch& batch) {
    const std::lock_guard lock(mutex_);
    check_stop();
    return reader_.next(batch);
  }

  static constexpr size_t kMostPieces = size_t{1} << 20;
  const TrainRequest& request_;
  std::mutex mutex_;
  BatchReader reader_;
  PieceCounts counts_;
};

std::vector<std::string> split_names(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

int train_tokenizer(int argc, const char* const* argv) {
  TrainRequest request;
  BpeTrainerOptions& trainer = request.trainer;
  ConfigSpec spec(
      "shale tokenizer train INPUT...",
      "trains a byte-level BPE tokenizer on text and jsonl files (.gz, .zst), folders of them, or "
      "standard input (-)");
  spec.add("out", request.out, "tokenizer.json to write",
           {.required = true, .is_path = true, .help = {.metavar = "FILE"}});
  spec.add("vocab", trainer.vocab_size, "vocabulary size: special tokens, 256 bytes, and merges",
           {.min = 256, .max = 1 << 22});
  spec.add("min-frequency", trainer.min_frequency, "minimum count of a pair to be merged",
           {.min = 0});
  spec.add_choice("split", trainer.pattern,
                  {{"gpt2", SplitPattern::kGpt2},
                   {"cl100k", SplitPattern::kCl100k},
                   {"qwen", SplitPattern::kQwen},
                   {"o200k", SplitPattern::kO200k}},
                  "pre-tokenizer: how text is split before merging; cl100k is that of Llama 3");
  spec.add("special", request.special, "comma-separated special tokens, which get the first ids",
           {.help = {.metavar = "TOKENS"}});
  spec.add("field", request.field, "key of the text in jsonl");
  spec.add("threads", request.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all cores"}});
  spec.example("shale tokenizer train corpus/ --vocab 32000 --out tokenizer.json");
  std::vector<std::string> inputs;
  if (parse_or_print(spec, argc, argv, inputs)) return 0;
  if (inputs.empty()) {
    throw ConfigError("shale tokenizer train: expected input files (text or jsonl), found none");
  }
  const StopSignals stop_signals;
  trainer.special = split_names(request.special);
  // Throws for invalid options now, not after minutes of counting.
  static_cast<void>(train_bpe({}, trainer));
  if (request.threads == 0) request.threads = cpu_counts().bound;
  data_internal::SkippedFiles skipped;
  request.inputs =
      list_inputs(inputs, request.field, skipped, [](const std::string&) { check_stop(); });
  log_info("counting the words of ", request.inputs.size(), " files", skipped.describe());
  const PieceCounts counts = Counter(request).count();
  if (counts.empty()) throw DataError("no text found in the inputs");
  log_info("merging pairs of ", counts.size(), " different words");
  const TokenizerSpec tokenizer = train_bpe(counts, trainer, [&](int64_t tokens) {
    check_stop();
    process_log().status(cat(tokens, " of ", trainer.vocab_size, " tokens"));
  });
  process_log().status("");
  write_file_atomically(request.out, to_tokenizer_json(tokenizer));
  const auto size = std::ssize(tokenizer.tokens);
  if (size < trainer.vocab_size) {
    log_warning("only ", size, " tokens: no other pair occurs ", trainer.min_frequency,
                " times; use more text, or --min-frequency 1");
  }
  std::printf("%lld tokens\nwrote %s\n", static_cast<long long>(size), request.out.c_str());
  return 0;
}

}  // namespace

int run_tokenizer(int argc, const char* const* argv) {
  static constexpr std::array kActions = {
      Tool{"train", "trains byte pair encoding and writes a tokenizer.json", train_tokenizer},
  };
  return run_tool({.program = "shale tokenizer",
                   .summary = "trains tokenizers",
                   .what = "action",
                   .closing = "",
                   .tools = kActions},
                  argc, argv);
}

}  // namespace shale::models
