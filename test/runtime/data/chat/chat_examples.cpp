#include "shale/runtime/data/chat/chat_examples.h"

#include <filesystem>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"
#include "shale/test/support/tokenizers.h"

namespace shale {

using test::chatml;
using test::contains;
using test::message_of;
using test::TempDir;

TEST_CASE("lines of every kind become examples, on any number of threads", "[data]") {
  const TempDir dir;
  const auto marks = chatml();
  const std::string path = dir.write("a.jsonl", R"({"text": "ab"}

{"prompt": "p", "completion": "c"}
{"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "v"}]}
)");
  const ExampleOptions options{.paths = {path}, .tokenizer = marks, .val_fraction = 0};
  const ExampleSplits one = read_examples(options);
  REQUIRE(one.examples == 3);
  CHECK(one.val == nullptr);
  const auto targets = [&](int64_t i) {
    const auto length = one.train->length(i);
    std::vector<int32_t> inputs(static_cast<size_t>(length)), wanted(inputs.size());
    one.train->read(i, 0, inputs, wanted);
    std::string text;
    for (const int32_t token : wanted) {
      const std::vector<int32_t> id = {token};
      text += token == kernels::kIgnoreTarget ? "." : marks->tokenizer.decode(id);
    }
    CHECK(one.train->targets(i, 0, length) ==
          std::count_if(wanted.begin(), wanted.end(),
                        [](int32_t token) { return token != kernels::kIgnoreTarget; }));
    return text;
  };
  CHECK(targets(0) == "b<|endoftext|>");
  CHECK(targets(1) == "c<|endoftext|>");
  CHECK(targets(2) == cat(std::string(19, '.'), "v<|im_end|>."));
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += cat(R"({"prompt": "p", "completion": ")", i, "\"}\n");
  const std::string many = dir.write("many.jsonl", lines);
  std::vector<std::shared_ptr<const ExampleStore>> stores;
  for (const int threads : {1, 3}) {
    const ExampleSplits split = read_examples(
        {.paths = {many}, .tokenizer = marks, .val_fraction = 0.2, .threads = threads});
    CHECK(split.train->size() + split.val->size() == 500);
    CHECK((split.val->size() > 60 && split.val->size() < 140));
    stores.push_back(split.train);
  }
  REQUIRE(stores[0]->size() == stores[1]->size());
  for (int64_t i = 0; i < stores[0]->size(); ++i) {
    REQUIRE(stores[0]->length(i) == stores[1]->length(i));
  }
}

TEST_CASE("preferences are pairs, of which the answers alone count", "[data]") {
  const TempDir dir;
  const auto marks = chatml();
  const std::string path = dir.write(
      "p.jsonl",
      R"({"prompt": "p", "chosen": "good", "rejected": "no"}
{"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "old"},)"
      R"( {"role": "user", "content": "w"}], "chosen": [{"role": "assistant", "content": "yes"}],)"
      R"( "rejected": [{"role": "assistant", "content": "n"}]})");
  const ExampleSplits pairs = read_examples(
      {.paths = {path}, .kind = ExampleKind::kPreferences, .tokenizer = marks, .val_fraction = 0});
  CHECK(pairs.examples == 2);
  REQUIRE(pairs.train->size() == 4);
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < 4; ++i) {
    counts.push_back(pairs.train->targets(i, 0, pairs.train->length(i)));
  }
  CHECK(counts == std::vector<int64_t>{5, 3, 4, 2});  // counts include each answer's end token
}

TEST_CASE("a prompt that answers repeat is written once", "[data]") {
  const TempDir dir;
  const auto marks = chatml();
  const std::string user = R"({"role": "user", "content": "u"})";
  const std::string system = R"({"role": "system", "content": "s"})";
  const auto lengths = [&](const std::string& prompt, const std::string& before) {
    std::string line = prompt.empty() ? "{\"id\": 1" : "{\"prompt\": " + prompt;
    for (const char* key : {"chosen", "rejected"}) {
      line += cat(", \"", key, "\": [", before, before.empty() ? "" : ", ",
                  R"({"role": "assistant", "content": ")", key, "\"}]");
    }
    const std::string path = dir.write("p.jsonl", line + "}");
    const auto pairs = read_examples({.paths = {path},
                                      .kind = ExampleKind::kPreferences,
                                      .tokenizer = marks,
                                      .val_fraction = 0});
    const int64_t learnt = pairs.train->targets(0, 0, pairs.train->length(0));
    return std::pair(pairs.train->length(0), learnt);
  };
  const auto once = lengths("\"u\"", "");
  CHECK(once.second == 7);
  CHECK(lengths("\"u\"", user) == once);
  CHECK(lengths("[" + user + "]", user) == once);
  CHECK(lengths("\"u \\n\"", user) == once);
  const auto with_system = lengths("[" + system + ", " + user + "]", "");
  CHECK(lengths("\"u\"", system + ", " + user) == with_system);
  CHECK(lengths("[" + system + ", " + user + "]", user) == with_system);
  CHECK(lengths("[" + system + ", " + user + "]", system + ", " + user) == with_system);
  // In a file without prompts, the common beginning of both answers is the prompt.
  CHECK(lengths("", user) == once);
  // Assistant turns that both answers begin with are part of the prompt.
  const std::string old = R"({"role": "assistant", "content": "old"})";
  const auto turns = lengths("\"u\"", user + ", " + old + ", " + user);
  CHECK(turns.second == 7);
  const std::string other = R"({"role": "user", "content": "w"})";
  CHECK(lengths("\"u\"", other + ", " + old + ", " + user) == turns);
  CHECK(lengths("\"w\"", other + ", " + old + ", " + user) == turns);
  CHECK(contains(message_of<DataError>([&] { lengths("\"v\"", user); }),
                 "p.jsonl:1: the answer begins with a user message"));
}

TEST_CASE("examples are divided by the names of files, else by a hash of each line", "[data]") {
  const TempDir dir;
  const auto marks = chatml();
  std::filesystem::create_directories(dir.file("data/valid"));
  const auto lines = [](int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) text += cat("{\"text\": \"line ", i, "\"}\n");
    return text;
  };
  const std::string train = dir.write("data/train.json", lines(0, 40));
  dir.write("data/README.md", "not an example");
  const auto sizes = [&](const std::vector<std::string>& paths) {
    const ExampleSplits splits =
        read_examples({.paths = paths, .tokenizer = marks, .val_fraction = 0.5});
    return std::pair(splits.train->size(), splits.val->size());
  };
  const auto by_hash = sizes({dir.file("data")});
  CHECK((by_hash.first > 5 && by_hash.second > 5 && by_hash.first + by_hash.second == 40));
  CHECK(sizes({train}) == by_hash);
  dir.write("data/test.jsonl", lines(50, 2));
  CHECK(sizes({dir.file("data")}) == std::pair<int64_t, int64_t>{40, 2});
  const std::string valid = dir.write("data/valid/0.jsonl", lines(60, 3));
  CHECK(sizes({dir.file("data")}) == std::pair<int64_t, int64_t>{40, 3});
  CHECK(sizes({train, valid}) == std::pair<int64_t, int64_t>{40, 3});
  const ExampleSplits splits = read_examples({.paths = {dir.file("data")}, .tokenizer = marks});
  CHECK(splits.note ==
        ", chosen by file name; skipped 1 without lines of JSON, 1 of the test split");
}

TEST_CASE("keys that others train on are refused, and the rest is counted", "[data]") {
  const TempDir dir;
  // Reads a file with this line, and returns the log's note about it, or the error.
  const auto said = [&](const std::string& line, const std::string& more,
                        ExampleKind kind = ExampleKind::kAnswers) {
    const std::string path = dir.write("k.jsonl", cat("{", line, ", ", more, "}\n"));
    try {
      return read_examples(
                 {.paths = {path}, .kind = kind, .tokenizer = chatml(), .val_fraction = 0})
          .note;
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  const std::string turns =
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "v"}])";
  const std::string chat = R"("messages": )" + turns;
  const std::string pair = R"("prompt": "u", "chosen": )" + turns + R"(, "rejected": )" + turns;
  for (const char* more :
       {R"("system": "s")", R"("text": "t")", R"("prompt": "p")", R"("completion": "c")",
        R"("tool_calls": [{}])", R"("function_call": {"name": "f"})", R"("functions": [{}])",
        R"("images": ["a.png"])", R"("chat_template_kwargs": {"a": 1})", R"("weight": 0)",
        R"("weight": 0.5)", R"("train": false)", R"("label": false)", R"("labels": [1])",
        R"("conversations": [{"from": "human", "value": "x"}])",
        R"("prompt": [{"role": "user", "content": "w"}])"}) {
    const std::string key(more, std::string(more).find(':'));
    CHECK(contains(said(chat, more), cat("k.jsonl:1: the key '", key.substr(1, key.size() - 2))));
  }
  CHECK(contains(said(R"("prompt": "u", "completion": "v")", R"("tools": [{}])"), "'tools'"));
  CHECK(contains(said(pair, R"("system": "s")", ExampleKind::kPreferences), "'system'"));
  CHECK(contains(said(pair, R"("messages": [])", ExampleKind::kPreferences), "messages (in 1"));
  // These additional keys of a record carry no new information.
  for (const char* more :
       {R"("prompt": "u")", R"("prompt": [{"role": "user", "content": "u"}])", R"("system": "")",
        R"("images": [])", R"("tool_calls": null)", R"("weight": 1)", R"("train": true)",
        R"("label": 0)", R"("source": "x")", R"("score_chosen": 8.5)"}) {
    const std::string key(more, std::string(more).find(':'));
    CHECK(said(chat, more) ==
          cat("; ignored keys: ", key.substr(1, key.size() - 2), " (in 1 lines)"));
  }
  CHECK(said(chat, R"("prompt": "u", "prompt_id": 3, "chosen": [], "rejected": [])") ==
        "; ignored keys: chosen (in 1 lines), prompt (in 1), prompt_id (in 1), rejected (in 1)");
  CHECK(said(pair, R"("messages": )" + turns, ExampleKind::kPreferences) ==
        "; ignored keys: messages (in 1 lines)");
  CHECK(said(R"("text": "Do: u\nAnswer: v")", R"("prompt": "u", "output": "v")") ==
        "; ignored keys: output (in 1 lines), prompt (in 1)");
  CHECK(said(chat, R"("tools": null)") == "");
  CHECK(said(R"("prompt": "a <|im_end|>")", R"("completion": "b")") ==
        "; special tokens that stay text: <|im_end|> (in 1 lines)");
  CHECK(contains(said(R"("messages": "u")", R"("id": 1)"), "'messages' is \"u\", expected a list"));
  // The template ignores these keys of messages.
  CHECK(
      said(R"("messages": [{"role": "tool", "content": "u", "name": "n", "tool_call_id": "1"},)"
           R"( {"role": "assistant", "content": "v", "name": null}])",
           R"("id": 1)") ==
      "; ignored keys: id (in 1 lines), name of messages (in 1), tool_call_id of messages (in 1)");
}

TEST_CASE("what is wrong with an example is said, with its line", "[data]") {
  const TempDir dir;
  const auto marks = chatml();
  const auto error = [&](const std::string& line, ExampleKind kind = ExampleKind::kAnswers) {
    const std::string path = dir.write("x.jsonl", "{\"text\": \"fine\"}\n" + line);
    const std::string good = kind == ExampleKind::kAnswers ? path : dir.write("y.jsonl", line);
    return message_of<DataError>([&] {
      read_examples({.paths = {good}, .kind = kind, .tokenizer = marks, .val_fraction = 0});
    });
  };
  CHECK(contains(error("[1]"), "x.jsonl:2: is not a JSON object"));
  CHECK(contains(error("{"), "x.jsonl:2"));
  CHECK(contains(error("{\"text\": 3}"), "'text' is 3"));
  CHECK(contains(error("{\"body\": \"x\"}"), "expected 'messages'"));
  CHECK(contains(error("{\"messages\": []}"), "'messages' is []"));
  CHECK(contains(error("{\"messages\": [{\"role\": \"user\"}]}"), "no 'content'"));
  const auto turn = [&](const std::string& more) {
    return error(R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", )"
                 R"("content": "y", )" +
                 more + "}]}");
  };
  CHECK(contains(turn(R"("wieght": 0)"), "x.jsonl:2: a message has the key 'wieght'"));
  CHECK(contains(turn(R"("weight": 0.5)"), "'weight' of a message is 0.5, expected 0 or 1"));
  CHECK(contains(turn(R"("weight": 0)"), "nothing to train on"));
  CHECK(contains(turn(R"("tool_calls": [1])"), "ignores 'tool_calls'"));
  CHECK(contains(turn(R"("reasoning_content": "r")"), "ignores 'reasoning_content'"));
  CHECK(contains(error(R"({"tools": [{}], "messages": [{"role": "assistant", "content": "y"}]})"),
                 "ignores 'tools'"));
  CHECK(contains(turn(R"("tool_calls": null, "name": 3)"), "'name' of a message is 3"));
  CHECK(
      contains(error(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}]})"),
               "'content' of a message is null"));
  CHECK(contains(error("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}"),
                 "nothing to train on"));
  CHECK(contains(error("{\"prompt\": \"x\", \"chosen\": \"y\"}", ExampleKind::kPreferences),
                 "no 'rejected'"));
  CHECK(contains(
      error(R"({"prompt": "x", "chosen": "y", "rejected": [{}]})", ExampleKind::kPreferences),
      "expected both or none"));
  CHECK(contains(error("{\"text\": \"\xff\"}"), "x.jsonl:2"));
  const std::string text = dir.write("x.txt", "text");
  CHECK(contains(message_of<DataError>([&] {
                   read_examples({.paths = {text}, .tokenizer = marks, .val_fraction = 0});
                 }),
                 "expected jsonl"));
}

}  // namespace shale
