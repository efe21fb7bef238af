#include "shale/runtime/data/corpus/documents.h"

#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "shale/base/error.h"
#include "shale/runtime/data/fetch_advice.h"
#include "shale/runtime/data/text/tokenizer/split.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/compressed.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using test::contains;
using test::gzipped;
using test::message_of;
using test::TempDir;
using test::zstd_frame;

std::vector<std::string> documents_of(const std::vector<std::string>& paths,
                                      CorpusPosition from = {}) {
  const std::vector<CorpusFile> files = list_corpus(paths);
  BatchReader reader(files, tokenizer_internal::find_line_cut, from);
  DocumentBatch batch;
  std::vector<std::string> documents;
  std::string part;
  while (reader.next(batch)) {
    const CorpusFile& file = files[static_cast<size_t>(batch.begin.file)];
    for_each_document(batch, file, "text", [&](std::string_view text) {
      part += text;
      if (batch.ends_document) documents.push_back(std::exchange(part, {}));
    });
  }
  CHECK(reader.taken() == [&] {
    int64_t bytes = 0;
    for (const CorpusFile& file : files) bytes += file.bytes;
    return bytes;
  }());
  return documents;
}

std::string many_lines(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += cat("{\"id\":", i, ",\"text\":\"line ", i, "\"}\n");
  return text;
}

}  // namespace

TEST_CASE("documents come from text and jsonl, compressed or not", "[data]") {
  const TempDir dir;
  const std::string jsonl =
      "{\"text\":\"a\\u00e9\\n\",\"n\":[{\"text\":\"no\"}]}\r\n\n"
      "  {\"x\":1,\"text\":\"\"}\n{\"text\":\"old\",\"text\":\"b\"}";
  using Texts = std::vector<std::string>;
  const Texts want = {"a\u00e9\n", "b"};
  CHECK(documents_of({dir.write("1.jsonl", jsonl)}) == want);
  CHECK(documents_of({dir.write("1.jsonl.gz", gzipped(jsonl))}) == want);
  CHECK(documents_of({dir.write("1.jsonl.zst", zstd_frame(jsonl))}) == want);
  // Files may consist of several gzip members with padding, or of several zstd frames.
  const auto in_two = [&](const std::function<std::string(std::string_view)>& compress) {
    return compress(std::string_view(jsonl).substr(0, 5)) +
           compress(std::string_view(jsonl).substr(5));
  };
  CHECK(documents_of({dir.write("2.jsonl.gz", in_two(gzipped) + std::string(20, '\0'))}) == want);
  CHECK(documents_of({dir.write("2.jsonl.zst", in_two(zstd_frame))}) == want);
  CHECK(documents_of({dir.write("1.txt", "all of\nit\n"), dir.write("0.txt", "")}) ==
        Texts{"all of\nit\n"});
}

TEST_CASE("a folder is its text by name, without binaries and what is hidden", "[data]") {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("b"));
  dir.write("b/2.jsonl", "{\"text\":\"two\"}");
  dir.write("b/1.txt", "one");
  dir.write(".hidden", "no");
  dir.write("binary", std::string("a\0b", 3));
  dir.write("empty", "");
  dir.write("c.txt.gz", gzipped("three"));
  CHECK(documents_of({dir.file("")}) == std::vector<std::string>{"one", "two", "three"});
  const std::vector<CorpusFile> files = list_corpus({dir.file("")});
  CHECK(files[0].name == "b/1.txt");
}

TEST_CASE("lines of JSON are known by their content, whatever the file is called", "[data]") {
  const TempDir dir;
  const auto is_jsonl = [&](const std::string& name, const std::string& bytes,
                            std::string_view field = "text") {
    return list_corpus({dir.write(name, bytes)}, field).front().is_jsonl;
  };
  const std::string lines = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
  for (const char* name : {"a.json", "a.JSON", "a.JSONL", "a.Ndjson", "a.txt", "a"}) {
    CAPTURE(name);
    CHECK(is_jsonl(name, lines));
  }
  CHECK(is_jsonl("a.json.gz", gzipped(lines)));
  CHECK(is_jsonl("a.JSON.GZ", gzipped(lines)));
  CHECK(is_jsonl("a.json.zst", zstd_frame(lines)));
  CHECK(is_jsonl("a.json", "\n  \n" + lines));
  CHECK(is_jsonl("a.json", "\xef\xbb\xbf" + lines));
  CHECK(is_jsonl("a.json", "{\"text\":\"" + std::string(3'000'000, 'a') + "\"}"));
  CHECK(is_jsonl("a.json", "{\"body\":\"a\"}", "body"));
  CHECK(is_jsonl("a.json", "{\"messages\":[]}"));
  CHECK(is_jsonl("a.json", "{\"other\":1}\r\n{\"other\":2}"));
  // Although line 2 is not valid JSON.
  CHECK(is_jsonl("a.json", "{\"text\":\"a\"}\n{\"text\": cut"));
  for (const char* text :
       {"{\"other\":{\"text\":1}}", "{\n\"text\":\"a\"}", "[{\"text\":1}]", "{}\n{}\n",
        "{ print $1 }\n{ print $2 }\n", "text\n{\"text\":\"a\"}\n", "\n", "1\n2\n"}) {
    CAPTURE(text);
    CHECK_FALSE(is_jsonl("a.txt", text));
  }
  using Texts = std::vector<std::string>;
  CHECK(documents_of({dir.write("b.json", "\xef\xbb\xbf" + lines)}) == Texts{"a", "b"});
  for (const char* text : {"[{\"text\":1}]", "{\n\"text\":\"a\"}"}) {
    const std::string path = dir.write("c.json", text);
    CHECK(contains(message_of<DataError>([&] { list_corpus({path}); }),
                   "expected an object with 'text' in each line, found other JSON"));
  }
}

TEST_CASE("what is left out of a folder is counted by kind", "[data]") {
  const TempDir dir;
  dir.write("a.parquet", std::string("PAR1\0\0PAR1", 10));
  dir.write("b.parquet", std::string("PAR1\0PAR1", 9));
  dir.write("a.arrow", std::string("ARROW1\0\0", 8));
  dir.write("stream.arrow", std::string("\xff\xff\xff\xff\0\1", 6));
  dir.write("c.png", std::string("\x89PNG\0", 5));
  dir.write("damaged.gz", "not gzip");
  dir.write("empty", "");
  dir.write("a.txt", "text");
  // A JSON data set whose records are not one per line is an error. Any other JSON is read as text.
  dir.write("records.json", "[\n {\"instruction\": \"a\"}]");
  dir.write("pretty.json.gz", gzipped("{\n \"messages\": [\n {}]\n}\n"));
  dir.write("settings.json", "{\n \"name\": {\"text\": 1}\n}");
  dir.write("numbers.json", "[1, 2]");
  data_internal::SkippedFiles skipped;
  dir.write("d.bin", std::string("a\0b", 3));
  dir.write("lines.txt", "more text than in all the tables\n");
  CHECK(list_corpus({dir.path()}, "text", &skipped).size() == 4);
  const std::string text = skipped.describe();
  CHECK(contains(text, "2 JSON not in lines"));
  CHECK(contains(text, "skipped 2 Arrow, 1 PNG, 2 Parquet, 1 binary, 1 unreadable ("));
  CHECK(contains(text, "damaged.gz: not gzip"));
  CHECK(contains(text, "1 empty"));
  CHECK(contains(message_of<DataError>([&] { list_corpus({dir.file("a.parquet")}); }),
                 "a.parquet: expected text or jsonl, found a Parquet file; read it with python3 -m "
                 "shale.data " +
                     dir.file("a.parquet") + " | shale tokenize -"));
  dir.write("lines.txt", "less");
  CHECK(contains(message_of<DataError>([&] { list_corpus({dir.path()}); }),
                 "expected text or jsonl, found 33 B of Arrow beside 8 B of text; read it with"));
}

TEST_CASE("a path that does not exist is told how to fetch it", "[data]") {
  using data_internal::fetch_advice;
  const TempDir dir;
  CHECK(fetch_advice("s3://bucket/x") ==
        "; fetch it first: aws s3 cp --recursive s3://bucket/x DIR");
  const std::string hub = "hf download owner/name --repo-type dataset --local-dir DIR";
  for (const char* address : {"hf://datasets/owner/name", "hf://datasets/owner/name/data/0.parquet",
                              "https://huggingface.co/datasets/owner/name/tree/main"}) {
    CAPTURE(address);
    CHECK(fetch_advice(address) == "; fetch it first: " + hub);
  }
  CHECK(fetch_advice("https://a.org/b.txt") == "; fetch it first: curl -LO https://a.org/b.txt");
  CHECK(contains(fetch_advice("owner/name"), hub));
  CHECK(fetch_advice(dir.file("x")).empty());
  for (const char* path : {"name", "a/b/c", "./a", "a/", "/a", ""}) {
    CAPTURE(path);
    CHECK(fetch_advice(path).empty());
  }
}

TEST_CASE("a stream of shale.data that was cut is an error", "[data]") {
  const TempDir dir;
  const auto stream = [](int64_t lines, int64_t said) {
    return cat(kStreamBegin, "\n", many_lines(static_cast<size_t>(lines)), kStreamEnd, said, "}\n");
  };
  for (const int64_t lines : {0, 1, 3, 100'000}) {
    CAPTURE(lines);
    CHECK(std::ssize(documents_of({dir.write("a.jsonl", stream(lines, lines))})) == lines);
  }
  const auto message = [&](const std::string& text) {
    const std::string path = dir.write("b", text);
    return message_of<DataError>([&] { documents_of({path}); });
  };
  const std::string lacks = "lines without the last line of shale.data";
  CHECK(contains(message(stream(3, 2)), "b: ends after 5 " + lacks));
  const std::string whole = stream(100'000, 100'000);
  CHECK(contains(message(whole.substr(0, whole.find("line 77777\"") + 13)), lacks));
  CHECK(contains(message(whole.substr(0, whole.size() - 3)), lacks));
  CHECK(contains(message(cat(kStreamBegin, "\n")), lacks));
  CHECK(contains(message(stream(2, 2) + stream(2, 2)), lacks));
  CHECK(contains(message(many_lines(2) + stream(2, 2)),
                 "b:3: a second stream of shale.data begins here"));
  // Reading that goes on from a later batch checks the end, too.
  const std::string path = dir.write("c.jsonl", whole.substr(0, whole.size() - 3));
  const std::vector<CorpusFile> files = list_corpus({path});
  DocumentBatch batch;
  BatchReader reader(files, tokenizer_internal::find_line_cut);
  REQUIRE(reader.next(batch));
  REQUIRE(reader.next(batch));
  BatchReader again(files, tokenizer_internal::find_line_cut, batch.begin);
  CHECK(contains(message_of<DataError>([&] {
                   while (again.next(batch)) {
                   }
                 }),
                 lacks));
}

TEST_CASE("a pipe is read once, from its beginning", "[data]") {
  const TempDir dir;
  const auto through_pipe = [&](const std::string& text, bool* is_jsonl = nullptr) {
    const std::string path = dir.file("pipe");
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    std::signal(SIGPIPE, SIG_IGN);  // the writer may write more than is read
    CHECK(is_pipe(path));
    std::thread writer([&] { std::ofstream(path) << text; });
    const auto join = std::shared_ptr<void>(nullptr, [&](void*) { writer.join(); });
    int64_t calls = 0;
    auto pipe = std::make_shared<PipeSource>(path, [&](const std::string&) { ++calls; });
    const std::vector<CorpusFile> files = {corpus_of_pipe(std::move(pipe))};
    if (is_jsonl != nullptr) *is_jsonl = files.front().is_jsonl;
    BatchReader reader(files, tokenizer_internal::find_line_cut);
    std::string all;
    for (DocumentBatch batch; reader.next(batch);) all += batch.text;
    CHECK(calls > 0);
    return all;
  };
  bool is_jsonl = false;
  const std::string lines = many_lines(100'000);
  CHECK(through_pipe(lines, &is_jsonl) == lines);
  CHECK(is_jsonl);
  CHECK(through_pipe("all of\nit\n", &is_jsonl) == "all of\nit\n");
  CHECK_FALSE(is_jsonl);
  CHECK(through_pipe("").empty());
  CHECK(contains(message_of<DataError>([&] { through_pipe(gzipped(lines)); }),
                 "expected text or jsonl, found gzip; pipe the decompressed text"));
  CHECK(is_pipe("-"));
  CHECK_FALSE(is_pipe(dir.write("file", "")));
  CHECK_FALSE(is_pipe(dir.file("none")));
}

TEST_CASE("batches follow from where they begin, whatever was read before", "[data]") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += cat("Words of line ", i, i % 7 == 0 ? " \n\n" : "\n");
  const std::vector<CorpusFile> files = list_corpus(
      {dir.write("a.jsonl.gz", gzipped(many_lines(100'000))), dir.write("b.txt", text)});
  std::vector<DocumentBatch> batches;
  BatchReader reader(files, tokenizer_internal::find_line_cut);
  for (DocumentBatch batch; reader.next(batch);) batches.push_back(batch);
  REQUIRE(batches.size() >= 6);
  std::string joined;
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].begin.file == 1) joined += batches[i].text;
    BatchReader again(files, tokenizer_internal::find_line_cut, batches[i].begin);
    DocumentBatch batch;
    REQUIRE(again.next(batch));
    CHECK(batch.text == batches[i].text);
    CHECK(batch.begin.line == batches[i].begin.line);
    CHECK(batch.ends_document == batches[i].ends_document);
  }
  CHECK(joined == text);
  CHECK(batches.back().ends_document);
}

TEST_CASE("what is damaged, not text, or too long is said with file and place", "[data]") {
  const TempDir dir;
  const auto message = [&](const std::string& name, const std::string& bytes) {
    const std::string path = dir.write(name, bytes);
    return message_of<DataError>([&] { documents_of({path}); });
  };
  const std::string lines = many_lines(50'000);
  const std::string gz = gzipped(lines), zst = zstd_frame(lines);
  CHECK(
      contains(message("t.jsonl.gz", gz.substr(0, gz.size() / 2)), "t.jsonl.gz: ends in the mid"));
  CHECK(contains(message("t.jsonl.gz", gz.substr(0, gz.size() - 1)), "ends in the middle"));
  CHECK(contains(message("e.gz", ""), "ends in the middle"));
  CHECK(contains(message("n.gz", "not gzip at all"), "n.gz: not gzip at byte"));
  CHECK(contains(message("x.gz", gz + "trailing"), "not gzip"));
  CHECK(contains(message("t.jsonl.zst", zst.substr(0, zst.size() / 2)), "ends in the middle"));
  CHECK(contains(message("e.zst", ""), "ends in the middle"));
  CHECK(contains(message("n.zst", "not zstd at all"), "n.zst: not zstd near byte"));
  std::string damaged = gz;
  damaged[damaged.size() / 2] ^= 64;
  CHECK(contains(message("d.jsonl.gz", damaged), "d.jsonl.gz"));

  CHECK(contains(message("a.jsonl", "{\"text\":\"a\"}\n{\"text\":1}\n"), "a.jsonl:2: expected a string"));
  CHECK(contains(message("a.jsonl", "[\"text\"]\n"), "a.jsonl:1: expected a string"));
  CHECK(contains(message("a.jsonl", "\n\n{\"text\":\n"), "a.jsonl:3: not valid JSON"));
  CHECK(contains(message("a.jsonl", "{\"text\":\"\xff\"}\n"), "a.jsonl:1: not valid JSON"));
  CHECK(contains(message("a.jsonl", std::string(100'000, '[')), "a.jsonl:1"));
  CHECK(contains(message("a.txt", "ab\xc3(\n"), "a.txt: not UTF-8 at byte 2"));
  CHECK(contains(message("a.txt", std::string("a\0b", 3)), "byte 0 at position 1"));
  CHECK(contains(message("long.jsonl", "{}\n{\"text\":\"" + std::string(100 << 20, 'a') + "\"}\n"),
                 "long.jsonl:"));
  CHECK(contains(message_of<MissingInputError>([&] { list_corpus({dir.file("none")}); }), "none"));
  std::filesystem::create_directory(dir.file("folder"));
  CHECK(contains(message_of<DataError>([&] { list_corpus({dir.file("folder")}); }), "no text"));
}

}  // namespace shale
