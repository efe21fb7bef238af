#include "shale/runtime/data/corpus/tokenize.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "shale/base/error.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using test::contains;
using test::message_of;
using test::read_file;
using test::TempDir;
namespace fs = std::filesystem;

std::shared_ptr<const StoredTokenizer> small_tokenizer(int64_t vocab = 300) {
  PieceCounts counts;
  const std::string text = "line of a document with words, and words with a line";
  for (int i = 0; i < 3; ++i) {
    count_pieces(text, tokenizer_internal::SplitPattern::kCl100k, counts);
  }
  const TokenizerSpec spec = train_bpe(counts, {.vocab_size = vocab});
  return parse_tokenizer(to_tokenizer_json(spec), "small");
}

// Makes documents for several batches, in two files.
std::vector<CorpusFile> corpus(const TempDir& dir) {
  std::mt19937 random(3);
  std::string lines, text;
  for (int i = 0; i < 40'000; ++i) {
    lines += cat("{\"text\":\"line ", random() % 1000, " of a document\",\"i\":", i, "}\n");
    text += cat("Words of line ", random() % 1000, "\n");
  }
  return list_corpus({dir.write("a.jsonl", lines), dir.write("b.txt", text)});
}

TokenizeJob job_of(const TempDir& dir, const std::vector<CorpusFile>& inputs,
                   const std::string& out) {
  const auto tokenizer = small_tokenizer();
  return {.inputs = inputs,
          .tokenizer = tokenizer,
          .end = tokenizer->end_of_document,
          .out = dir.file(out),
          .shard_tokens = 100'000};
}

std::vector<std::string> shards_of(const std::string& folder) {
  std::vector<std::string> names, shards;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".bin") names.push_back(entry.path());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) shards.push_back(read_file(name));
  return shards;
}

}  // namespace

TEST_CASE("shards have the tokens of all documents, whatever the threads", "[data]") {
  const TempDir dir;
  const std::vector<CorpusFile> inputs = corpus(dir);
  TokenizeJob job = job_of(dir, inputs, "one");
  const TokenizeProgress done = tokenize(job);
  CHECK(done.documents == 40'001);
  CHECK_FALSE(fs::exists(dir.file("one.partial")));
  const std::vector<std::string> shards = shards_of(job.out);
  REQUIRE(shards.size() >= 3);
  for (const int threads : {2, 5}) {
    job.out = dir.file(cat("out", threads));
    job.threads = threads;
    tokenize(job);
    CHECK(shards_of(job.out) == shards);
  }

  // Training reads the same tokens that the encoder gives for the documents.
  const auto data = open_dataset({.path = dir.file("one"), .val_fraction = 0});
  CHECK(data.format == DataFormat::kLlmc);
  REQUIRE(data.train->size() == done.tokens);
  std::vector<int32_t> tokens(static_cast<size_t>(done.tokens));
  data.train->read(0, tokens);
  std::vector<int32_t> want;
  TokenEncoder encoder(job.tokenizer->tokenizer);
  DocumentBatch batch;
  const auto no_cut = [](std::string_view text, size_t) { return text.size(); };
  for (BatchReader reader(inputs, no_cut); reader.next(batch);) {
    for_each_document(batch, inputs[size_t(batch.begin.file)], "text", [&](std::string_view text) {
      encoder.append(text, {}, want);
      if (batch.ends_document) want.push_back(*job.end);
    });
  }
  CHECK(tokens == want);
}

TEST_CASE("tokenizing goes on where it was stopped, to the same bytes", "[data]") {
  const TempDir dir;
  const std::vector<CorpusFile> inputs = corpus(dir);
  TokenizeJob job = job_of(dir, inputs, "whole");
  const TokenizeProgress whole = tokenize(job);
  const std::vector<std::string> shards = shards_of(job.out);
  struct Stop {};
  job.out = dir.file("stopped");
  job.threads = 3;
  int stops = 0;
  while (!fs::exists(job.out)) {
    int batches = 0;
    job.on_progress = [&](const TokenizeProgress&) {
      if (++batches == 2) throw Stop{};
    };
    try {
      const TokenizeProgress done = tokenize(job);
      CHECK(done.tokens == whole.tokens);
      CHECK(done.documents == whole.documents);
      CHECK(done.bytes == whole.bytes);
    } catch (const Stop&) {
      ++stops;
      CHECK_FALSE(fs::exists(job.out));
      // A process that was killed while writing leaves such a file.
      dir.write("stopped.partial/.tokens_000000.bin.tmp-1-0", "half");
    }
    REQUIRE(stops < 50);
  }
  CHECK(stops >= 1);
  CHECK(shards_of(job.out) == shards);
  // The folder also contains tokenize.json, tokenizer.json and tokenizer_config.json.
  CHECK(shards_of(job.out).size() + 3 ==
        size_t(std::distance(fs::directory_iterator(job.out), fs::directory_iterator())));
  job.on_progress = {};
  CHECK(tokenize(job).tokens == whole.tokens);  // the job was finished, so this run does nothing
}

TEST_CASE("documents are divided by a hash of each, to the same bytes when stopped", "[data]") {
  const TempDir dir;
  std::vector<CorpusFile> inputs = corpus(dir);
  TokenizeJob job = job_of(dir, inputs, "one");
  job.val_fraction = 0.1;
  const TokenizeProgress done = tokenize(job);
  // 4000 expected; the margin is five standard deviations.
  CHECK(std::abs(done.val_documents - 4000) < 300);
  const auto shards = shards_of(job.out);
  const auto sizes = [](const std::string& path) {
    const DatasetSplits splits = open_dataset({.path = path});
    return std::pair(splits.train->size(), splits.val->size());
  };
  CHECK(sizes(job.out) == std::pair(done.tokens - done.val_tokens, done.val_tokens));
  struct Stop {};
  job.out = dir.file("stopped");
  job.threads = 2;
  while (!fs::exists(job.out)) {
    int batches = 0;
    job.on_progress = [&](const TokenizeProgress&) {
      if (++batches == 2) throw Stop{};
    };
    try {
      const TokenizeProgress again = tokenize(job);
      CHECK(again.val_tokens == done.val_tokens);
      CHECK(again.val_documents == done.val_documents);
    } catch (const Stop&) {
    }
  }
  CHECK(shards_of(job.out) == shards);

  // The split of a document does not depend on its file, position and compression.
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += cat("{\"text\":\"document ", i, "\"}\n");
  const auto in_val = [&](const std::vector<std::string>& paths) {
    static int number = 0;
    TokenizeJob some = job_of(dir, list_corpus(paths), cat("some", number++));
    some.val_fraction = 0.3;
    tokenize(some);
    const auto val = open_dataset({.path = some.out}).val;
    std::vector<int32_t> tokens(static_cast<size_t>(val->size()));
    val->read(0, tokens);
    std::multiset<std::string> documents;
    for (auto begin = tokens.begin(); begin != tokens.end();) {
      const auto end = std::find(begin, tokens.end(), *some.end);
      documents.insert(some.tokenizer->tokenizer.decode(std::vector<int32_t>(begin, end)));
      begin = end + 1;
    }
    return documents;
  };
  const auto val = in_val({dir.write("l.jsonl", lines)});
  CHECK((val.size() > 5 && val.size() < 35));
  std::vector<std::string> texts;
  for (int i = 59; i >= 0; --i) {
    texts.push_back(dir.write(cat("t", i), cat("document ", i)));
  }
  CHECK(in_val(texts) == val);
}

TEST_CASE("inputs whose names say so are for validation, whatever the fraction", "[data]") {
  const TempDir dir;
  const std::vector<std::string> paths = {dir.write("a.jsonl", "{\"text\":\"ab\"}\n"),
                                          dir.write("dev.jsonl", "{\"text\":\"c\"}\n"),
                                          dir.write("test.jsonl", "{\"text\":\"d\"}\n")};
  std::vector<CorpusFile> inputs = list_corpus(paths);
  data_internal::SkippedFiles skipped;
  divide_corpus(inputs, "inputs", skipped);
  CHECK(skipped.test == 1);
  TokenizeJob job = job_of(dir, inputs, "out");
  job.val_fraction = 0.99;
  const TokenizeProgress done = tokenize(job);
  CHECK((done.documents == 2 && done.val_documents == 1));
  const DatasetSplits splits = open_dataset({.path = job.out});
  CHECK((splits.train->size() == 3 && splits.val->size() == 2));
  // The tokenizer is stored in the folder of the shards.
  CHECK(are_same(*read_tokenizer(dir.file("out/tokenizer.json")), *job.tokenizer));
  CHECK(tokenizer_beside({.path = job.out}) == dir.file("out/tokenizer.json"));
  dir.write("tokenizer.json", "{}");
  CHECK_FALSE(tokenizer_beside({.path = paths[0]}).has_value());
}

TEST_CASE("a large vocabulary takes 32 bits a token, and begins take a token too", "[data]") {
  const TempDir dir;
  TokenizeJob job{.inputs = list_corpus({dir.write("a.jsonl", "{\"t\":\"ab\"}\n{\"t\":\"c\"}")}),
                  .field = "t",
                  .tokenizer = small_tokenizer(257),
                  .begin = 5,
                  .end = 0,
                  .out = dir.file("out/deep/")};
  CHECK(tokenize(job).tokens == 7);
  const std::string shard = read_file(dir.file("out/deep/tokens_000000.bin"));
  CHECK(shard.size() == 1024 + 2 * 7);
  const auto data = open_dataset({.path = dir.file("out/deep"), .val_fraction = 0});
  std::vector<int32_t> tokens(7);
  data.train->read(0, tokens);
  CHECK(tokens == std::vector<int32_t>{5, 'a' - '!' + 1, 'b' - '!' + 1, 0, 5, 'c' - '!' + 1, 0});
  // Repeats the test with a token id that exceeds 16 bits.
  TokenizerSpec spec = job.tokenizer->tokenizer.spec();
  spec.added.push_back({.id = 70'000, .text = "<far>"});
  job.tokenizer = parse_tokenizer(to_tokenizer_json(spec), "wide");
  job.out = dir.file("wide");
  job.end = 70'000;
  CHECK(tokenize(job).tokens == 7);
  CHECK(read_file(dir.file("wide/tokens_000000.bin")).size() == 1024 + 4 * 7);
  open_dataset({.path = dir.file("wide"), .val_fraction = 0}).train->read(0, tokens);
  CHECK(tokens[3] == 70'000);
}

TEST_CASE("what cannot be tokenized leaves nothing; another job is refused", "[data]") {
  const TempDir dir;
  const std::vector<CorpusFile> inputs = corpus(dir);
  TokenizeJob job = job_of(dir, inputs, "out");
  job.inputs.push_back(list_corpus({dir.write("c.jsonl", "{\"text\":7}")})[0]);
  job.shard_tokens = 1 << 30;
  CHECK(contains(message_of<DataError>([&] { tokenize(job); }), "c.jsonl:1"));
  CHECK_FALSE(fs::exists(dir.file("out")));
  CHECK_FALSE(fs::exists(dir.file("out.partial")));
  job.shard_tokens = 100'000;  // so many tokens per shard that a second run can keep some shards
  CHECK(contains(message_of<DataError>([&] { tokenize(job); }), "c.jsonl:1"));
  CHECK_FALSE(fs::exists(dir.file("out")));
  CHECK(fs::exists(dir.file("out.partial/tokens_000000.bin")));
  job.inputs.pop_back();
  CHECK(contains(message_of<ConfigError>([&] { tokenize(job); }), "its inputs is"));
  fs::remove_all(dir.file("out.partial"));
  tokenize(job);
  job.shard_tokens = 50'000;
  CHECK(contains(message_of<ConfigError>([&] { tokenize(job); }), "its shard_tokens is 100000"));
  job.out = dir.file("other");
  fs::create_directory(job.out);
  dir.write("other/file", "");
  CHECK(contains(message_of<ConfigError>([&] { tokenize(job); }), "already exists"));
  job.inputs = list_corpus({dir.write("empty.jsonl", "\n\n")});
  job.out = dir.file("none");
  CHECK(contains(message_of<DataError>([&] { tokenize(job); }), "no text"));
  dir.write("broken.partial", "a file");
  job.out = dir.file("broken");
  CHECK_FALSE(message_of<Error>([&] { tokenize(job); }).empty());
}

TEST_CASE("a job that reads a pipe makes the same shards, and begins anew", "[data]") {
  const TempDir dir;
  const std::string lines = read_file(corpus(dir)[0].path);
  const auto through_pipe = [&](const std::string& text, const std::string& out) {
    const std::string path = dir.file("pipe");
    fs::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    std::signal(SIGPIPE, SIG_IGN);  // the writer fails without a signal if the reader stops early
    std::thread writer([&] { std::ofstream(path) << text; });
    const auto join = std::shared_ptr<void>(nullptr, [&](void*) { writer.join(); });
    TokenizeJob job = job_of(dir, {corpus_of_pipe(std::make_shared<PipeSource>(path))}, out);
    job.val_fraction = 0.1;
    return tokenize(job);
  };
  TokenizeJob job = job_of(dir, list_corpus({dir.file("a.jsonl")}), "of_file");
  job.val_fraction = 0.1;
  tokenize(job);
  // The first attempt fails and leaves shards behind.
  CHECK_THROWS_AS(through_pipe(lines + "{\"text\":7}\n", "of_pipe"), DataError);
  CHECK(fs::exists(dir.file("of_pipe.partial/tokens_000000.bin")));
  CHECK(through_pipe(lines, "of_pipe").documents == 40'000);
  CHECK(shards_of(dir.file("of_pipe")) == shards_of(dir.file("of_file")));
  CHECK_FALSE(fs::exists(dir.file("of_pipe.partial")));
  CHECK(contains(message_of<ConfigError>([&] { through_pipe(lines, "of_pipe"); }),
                 "it is unknown whether"));
  CHECK(through_pipe("one text, which is not held out\n", "text").val_documents == 0);
  job.inputs.push_back({.pipe = std::make_shared<PipeSource>("/dev/null")});
  job.out = dir.file("two");
  CHECK(contains(message_of<ConfigError>([&] { tokenize(job); }), "the only input"));
}

TEST_CASE("a process that makes the tokens and is stopped is named, and not waited for", "[data]") {
  const TempDir dir;
  TokenizeJob job = job_of(dir, corpus(dir), "out");
  job.waits = true;
  job.stopped_patience_s = 1;
  const std::string partial = job.out + ".partial";
  fs::create_directory(partial);
  const pid_t child = fork();
  if (child == 0) {
    const int folder = open(partial.c_str(), O_RDONLY | O_DIRECTORY);
    if (flock(folder, LOCK_EX) == 0) raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  const std::string message = message_of<UnavailableError>([&] { tokenize(job); });
  CHECK(contains(message, cat("process ", child, ", which makes these tokens, is stopped")));
  CHECK(contains(message, cat("kill -CONT ", child)));
  kill(child, SIGCONT);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(tokenize(job).documents > 0);
}

TEST_CASE("inputs whose names, sizes and times are kept are another job", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("a.txt", "Words of a line\n");
  const auto time = fs::last_write_time(path);
  TokenizeJob job = job_of(dir, list_corpus({path}), "out");
  tokenize(job);
  CHECK_NOTHROW(tokenize(job));
  dir.write("a.txt", "Lines of a word\n");
  fs::last_write_time(path, time);
  job.inputs = list_corpus({path});
  CHECK(contains(message_of<ConfigError>([&] { tokenize(job); }), "to another job: its inputs is"));
}

}  // namespace shale
