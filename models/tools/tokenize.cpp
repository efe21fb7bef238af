// shale tokenize: converts text and jsonl to token shards for training.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "shale/base/clock.h"
#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/report/progress.h"
#include "shale/models/training/stop_signals.h"
#include "shale/runtime/data/corpus/tokenize.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

void check_stop(bool is_pipe) {
  if (StopSignals::received() == 0) return;
  throw ErrorWithCode<ExitCode::kInterrupted>(cat(
      "shale tokenize: stopped by a signal; the same command ",
      is_pipe ? "starts again: a pipe is read only once" : "continues after the last whole shard"));
}

// Reports progress: on a terminal one line that changes, otherwise a new line from time to time.
class TokenizeReport {
 public:
  void operator()(const TokenizeProgress& now) {
    check_stop(/*is_pipe=*/now.total == 0);
    const bool is_drawn = process_log().has_status_line();
    if (seconds_since(shown_) < (is_drawn ? 0.2 : 10)) return;
    shown_ = Clock::now();
    const std::string line = describe(now);
    if (is_drawn) {
      process_log().status(line);
    } else {
      log_info(line);
    }
  }

  std::string describe(const TokenizeProgress& now) const {
    const double seconds = std::max(seconds_since(start_), 1e-3);
    const double bytes = static_cast<double>(now.bytes - now.earlier_bytes);
    const std::string percent =
        now.total == 0
            ? ""  // pipe of unknown size
            : cat(static_cast<int>(100.0 * double(now.taken) / double(now.total)), "% | ");
    return cat(percent, now.documents, " documents, ", now.tokens, " tokens | ",
               format_bytes(bytes / seconds), "/s | ", format_duration(seconds));
  }

 private:
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

// Finds a token by "none", its id, or its text.
std::optional<int32_t> find_token(const StoredTokenizer& stored, const std::string& name,
                                  const char* flag) {
  if (name == "none") return {};
  if (const std::optional<int32_t> id = stored.tokenizer.find(name)) return id;
  throw ConfigError(
      cat("--", flag, " is '", excerpt(name), "', expected a token of ", stored.path, ", or none"));
}

void find_tokens_around(const std::string& begin, const std::string& end, TokenizeJob& job) {
  job.begin = begin == "auto" ? begin_of_document(*job.tokenizer)
                              : find_token(*job.tokenizer, begin, "document-begin");
  if (end != "auto") {
    job.end = find_token(*job.tokenizer, end, "document-end");
    return;
  }
  job.end = job.tokenizer->end_of_document;
  if (job.end) return;
  throw ConfigError(cat(job.tokenizer->path,
                        ": no end-of-document token found; use --document-end TOKEN, or none"));
}

}  // namespace

int run_tokenize(int argc, const char* const* argv) {
  TokenizeJob job{.inputs = {}, .val_fraction = 0.1};
  std::string tokenizer, begin = "auto", end = "auto";
  ConfigSpec spec("shale tokenize INPUT...",
                  "converts text and jsonl files (.gz, .zst), folders of them, or standard input "
                  "(-) to token shards for train_lm --data; an interrupted job continues, but a "
                  "pipe must be read again");
  spec.add("tokenizer", tokenizer, "tokenizer.json, tiktoken file or SentencePiece model",
           {.required = true, .is_path = true, .help = {.metavar = "FILE"}});
  spec.add("out", job.out, "folder to create; it appears after the last token is written",
           {.required = true, .is_path = true, .help = {.metavar = "DIR"}});
  spec.add("field", job.field, "key of the text in jsonl");
  spec.add("document-begin", begin, "token before each document, or none",
           {.help = {.metavar = "TOKEN", .default_text = "that of the tokenizer"}});
  spec.add("document-end", end, "token after each document, or none",
           {.help = {.metavar = "TOKEN", .default_text = "that of the tokenizer"}});
  spec.add("val-fraction", job.val_fraction,
           "share of the documents for validation, chosen by hash, unless file names say which "
           "(val, valid, validation, dev)",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("shard-tokens", job.shard_tokens, "tokens per shard", {.min = 1, .max = INT32_MAX});
  job.threads = 0;
  spec.add("threads", job.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all cores"}});
  spec.example("shale tokenize corpus/*.jsonl.zst --tokenizer tokenizer.json --out tokens");
  std::vector<std::string> inputs;
  if (parse_or_print(spec, argc, argv, inputs)) return 0;
  if (inputs.empty())
    throw ConfigError("shale tokenize: expected input files (text or jsonl), found none");
  const StopSignals stop_signals;
  if (job.threads == 0) job.threads = cpu_counts().bound;
  job.tokenizer = read_tokenizer(tokenizer);
  find_tokens_around(begin, end, job);
  data_internal::SkippedFiles skipped;
  job.inputs = list_inputs(inputs, job.field, skipped,
                           [](const std::string&) { check_stop(/*is_pipe=*/true); });
  if (job.inputs.front().pipe == nullptr) divide_corpus(job.inputs, inputs.front(), skipped);
  TokenizeReport report;
  job.on_progress = [&report](const TokenizeProgress& now) { report(now); };
  TokenizeProgress done = tokenize(job);
  process_log().status("");
  done.taken = done.total;
  const bool by_name = std::any_of(job.inputs.begin(), job.inputs.end(),
                                   [](const CorpusFile& file) { return file.is_validation; });
  const std::string split =
      cat("validation: ", done.val_documents, " documents, ", done.val_tokens, " tokens, ",
          by_name ? "chosen by file name" : "chosen by a hash of each", skipped.describe());
  std::printf("%s\n%s\nwrote %s\n", report.describe(done).c_str(), split.c_str(), job.out.c_str());
  return 0;
}

}  // namespace shale::models
