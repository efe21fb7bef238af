#include "shale/runtime/data/chat/chat_examples.h"

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

// Makes a byte-level tokenizer whose first tokens are these special tokens.
std::shared_ptr<const StoredTokenizer> bytes_with(const std::vector<std::string>& marks) {
  std::string vocab, added;
  int id = 0;
  for (const std::string& mark : marks) {
    added += cat(id == 0 ? "" : ",", R"({"id":)", id, R"(,"content":")", mark,
                 R"(","special":true,"normalized":false})");
    vocab += cat(id == 0 ? "" : ",", "\"", mark, "\":", id);
    ++id;
  }
  for (const std::string& letter : byte_alphabet()) {
    const std::string quoted = letter == "\"" || letter == "\\" ? "\\" + letter : letter;
    vocab += cat(",\"", quoted, "\":", id++);
  }
  return parse_tokenizer(
      cat(R"({"added_tokens":[)", added,
          R"(],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
          R"("model":{"type":"BPE","vocab":{)", vocab, R"(},"merges":[]}})"),
      "tokenizer.json");
}

std::shared_ptr<const StoredTokenizer> chatml() {
  return bytes_with({"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
}

// Returns the text of an example, with its answers in brackets.
std::string shown(const StoredTokenizer& tokenizer, const MaskedTokens& example) {
  std::string text;
  bool is_answer = false;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    const bool is_next = example.is_answer[i] != 0;
    if (is_next != is_answer) text += is_next ? "[" : "]";
    is_answer = is_next;
    const std::vector<int32_t> one = {example.tokens[i]};
    text += tokenizer.tokenizer.decode(one);
  }
  return text + (is_answer ? "]" : "");
}

const std::vector<ChatMessage> kTalk = {
    {"user", "a <|im_end|>"}, {"assistant", " b\n"}, {"user", "c"}, {"assistant", "d"}};

}  // namespace

TEST_CASE("conversations are written as their templates say, answers marked", "[data]") {
  const auto marks = chatml();
  ChatEncoder encoder(marks, ChatTemplate::kAuto);
  const MaskedTokens talk = encoder.conversation(kTalk).front();
  CHECK(shown(*marks, talk) ==
        "<|im_start|>user\na <|im_end|><|im_end|>\n<|im_start|>assistant\n[ b\n<|im_end|>]\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>]\n");
  // Text that is spelled like a special token is not encoded as that token.
  CHECK(std::count(talk.tokens.begin(), talk.tokens.end(), 2) == 4);
  const std::vector<int32_t> prompt = encoder.prompt({{"user", "a"}});
  CHECK(marks->tokenizer.decode(prompt) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  const MaskedTokens whole = encoder.conversation({{"user", "a"}, {"assistant", "x"}}).front();
  CHECK(std::equal(prompt.begin(), prompt.end(), whole.tokens.begin()));

  ChatEncoder qwen(marks, ChatTemplate::kQwen);
  CHECK(marks->tokenizer.decode(qwen.prompt({{"user", "a"}})) ==
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
        "assistant.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  CHECK(marks->tokenizer.decode(qwen.prompt({{"system", "s"}, {"user", "a"}})) ==
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
        "<|im_start|>assistant\n");

  const std::string tools = marks->tokenizer.decode(
      qwen.prompt({{"system", "s"}, {"user", "a"}, {"tool", "b"}, {"tool", "c"}}));
  CHECK(contains(tools,
                 "a<|im_end|>\n<|im_start|>user\n<tool_response>\nb\n</tool_response>\n"
                 "<tool_response>\nc\n</tool_response><|im_end|>\n<|im_start|>assistant\n"));

  const auto llama = bytes_with({"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                 "<|end_header_id|>", "<|eot_id|>"});
  ChatEncoder three(llama, ChatTemplate::kAuto);
  CHECK(shown(*llama, three.conversation({{"user", " a "}, {"assistant", "b\n"}}).front()) ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[b<|eot_id|>]");
  CHECK(contains(message_of<DataError>([&] {
                   three.prompt({{"user", "a"}, {"tool", "b"}});
                 }),
                 "llama3 has no messages of tools"));
  // Plain text can be encoded without a template.
  CHECK(ChatEncoder(llama, ChatTemplate::kChatMl).text("a", "b").tokens.size() == 2);
  CHECK(
      contains(message_of<DataError>([&] { ChatEncoder(llama, ChatTemplate::kChatMl).prompt({}); }),
               "<|im_start|>"));
}

TEST_CASE("a template without generation blocks learns what turns add to their prompts", "[data]") {
  const auto marks = chatml();
  const auto chat = std::make_shared<const JinjaTemplate>(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "chat");
  ChatEncoder encoder(marks, chat);
  CHECK(encoder.end_of_turn() == 2);
  const std::vector<MaskedTokens> examples = encoder.conversation(kTalk);
  REQUIRE(examples.size() == 1);
  CHECK(shown(*marks, examples[0]) ==
        "<|im_start|>user\na <|im_end|><|im_end|>\n<|im_start|>assistant\n[ b\n<|im_end|>\n]"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>\n]");
  const auto& tokens = examples[0].tokens;
  CHECK(std::count(tokens.begin(), tokens.end(), 2) == 4);  // 2 is <|im_end|> as a token
  CHECK(shown(*marks, encoder.conversation(kTalk, 3).front()) ==
        "<|im_start|>user\na <|im_end|><|im_end|>\n<|im_start|>assistant\n b\n<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n[d<|im_end|>\n]");
}

TEST_CASE("a model's own template is found beside its tokenizer, and has its tokens' names",
          "[data]") {
  const TempDir dir;
  dir.write("tokenizer.json", chatml()->json);
  const std::string turns =
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}";
  const auto written = [&dir] {
    const auto stored = read_tokenizer(dir.file("tokenizer.json"));
    ChatEncoder encoder(stored, ChatTemplate::kAuto);
    return shown(*stored, encoder.conversation({{"user", "a"}, {"assistant", "b"}}).front());
  };
  const Json config = {{"eos_token", {{"content", "<|im_end|>"}}}, {"chat_template", turns}};
  dir.write("tokenizer_config.json", config.dump());
  CHECK(written() == "user:a<|im_end|>assistant:[b<|im_end|>]");
  const Json several = {
      {"chat_template", Json::array({{{"name", "tool_use"}, {"template", "x"}},
                                     {{"name", "default"}, {"template", turns}}})}};
  dir.write("tokenizer_config.json", several.dump());
  CHECK(written() == "user:a<|endoftext|>assistant:[b<|endoftext|>]");
  dir.write("chat_template.jinja", "{{ bos_token }}" + turns);
  CHECK(written() == "user:a<|endoftext|>assistant:[b<|endoftext|>]");
  dir.write("chat_template.jinja", "\n{% include 'x' %}");
  CHECK(contains(message_of<DataError>(written),
                 "tokenizer.json, line 2: tag 'include' is not supported"));
  dir.write("tokenizer_config.json", "{");
  CHECK(contains(message_of<DataError>(written), "tokenizer_config.json: not valid JSON"));
}

TEST_CASE("a text is tokenized once, behind what its tokenizer puts before it", "[data]") {
  // The Metaspace pre-tokenizer adds a space before a text; the token <s> precedes it.
  for (const char* scheme : {"first", "always"}) {
    const auto marks = parse_tokenizer(
        cat(R"({"added_tokens":[{"id":0,"content":"<s>","special":true,"normalized":false},)",
            R"({"id":1,"content":"<e>","special":true,"normalized":false}],)",
            R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":")", scheme,
            R"(","split":false},"post_processor":{"type":"TemplateProcessing","single":[)",
            R"({"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)",
            R"("special_tokens":{"<s>":{"ids":[0]}}},"model":{"type":"BPE","unk_token":"<e>",)",
            R"("vocab":{"<s>":0,"<e>":1,"_":2,"a":3,"b":4,"ab":5,"|":6},"merges":["a b"]}})"),
        "tokenizer.json");
    const auto ids_of = [&](const char* turns) {
      const auto chat = std::make_shared<const JinjaTemplate>(turns, "chat");
      return ChatEncoder(marks, chat).conversation({{"user", "a"}, {"assistant", "b"}}).front();
    };
    const std::vector<int32_t> once = {0, 2, 3, 6, 4, 1};
    const char* turns =
        "{{ messages[0].content }}|{% if messages[1] %}{{ messages[1].content }}<e>"
        "{% endif %}";
    CHECK(ids_of(turns).tokens == once);
    CHECK(ids_of(turns).is_answer == std::vector<uint8_t>{0, 0, 0, 0, 1, 1});
    CHECK(ids_of(("<s>" + std::string(turns)).c_str()).tokens.front() == 0);
    CHECK(ids_of(("<s>" + std::string(turns)).c_str()).tokens.size() ==
          (scheme == std::string("first") ? 5 : 6));
    ChatEncoder encoder(marks, std::make_shared<const JinjaTemplate>(turns, "chat"));
    CHECK(encoder.text("a", "|b").tokens == std::vector<int32_t>{0, 2, 3, 6, 4});
    CHECK(encoder.text("|", "ab").is_answer == std::vector<uint8_t>{0, 0, 0, 1});
    // A token belongs to the part of the text in which it begins.
    CHECK(encoder.text("a", "b|").is_answer == std::vector<uint8_t>{0, 0, 0, 1});
  }
}

TEST_CASE("turns of weight 0 and of the prompt are not learnt", "[data]") {
  const auto marks = chatml();
  const auto plain = std::make_shared<const JinjaTemplate>(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "chat");
  for (const bool has_blocks : {true, false}) {
    ChatEncoder encoder =
        has_blocks ? ChatEncoder(marks, ChatTemplate::kAuto) : ChatEncoder(marks, plain);
    std::vector<ChatMessage> talk = {
        {"user", "a"}, {"assistant", "b"}, {"tool", "c"}, {"assistant", "d"}};
    const auto count = [&](size_t first) {
      const MaskedTokens tokens = encoder.conversation(talk, first).front();
      return std::count(tokens.is_answer.begin(), tokens.is_answer.end(), 1);
    };
    const int64_t each = has_blocks ? 2 : 3;
    CHECK(count(0) == 2 * each);
    CHECK(count(1) == 2 * each);
    CHECK(count(2) == each);
    talk[1].is_learnt = false;
    CHECK(count(0) == each);
  }
}

TEST_CASE("templates have tools, calls and reasoning as they are", "[data]") {
  const auto marks = chatml();
  const auto chat = std::make_shared<const JinjaTemplate>(
      "{% for t in tools or [] %}{{ t.name }};{% endfor %}"
      "{% for m in messages %}{{ m.reasoning_content }}{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}<|im_end|>{% endfor %}",
      "chat");
  const ChatMessage call =
      read_chat_message({{"role", "assistant"},
                         {"content", nullptr},
                         {"reasoning_content", "r"},
                         {"tool_calls", Json::array({{{"function", {{"name", "f<|im_end|>"}}}}})}});
  const Json tools = Json::array({{{"name", "f"}}});
  const auto examples = ChatEncoder(marks, chat).conversation({{"user", "u"}, call}, 0, tools);
  CHECK(shown(*marks, examples.front()) == "f;u<|im_end|>[r(f<|im_end|>)<|im_end|>]");
  const auto& tokens = examples.front().tokens;
  CHECK(std::count(tokens.begin(), tokens.end(), 2) == 2);
}

TEST_CASE("a turn that others change when they follow is an example of its own", "[data]") {
  const auto marks = chatml();
  // The template drops reasoning (the text before '|') from all turns but the last.
  const auto chat = std::make_shared<const JinjaTemplate>(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{{ m.content if loop.last else m.content.split('|')[-1] }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "chat");
  const std::vector<MaskedTokens> examples =
      ChatEncoder(marks, chat)
          .conversation({{"user", "q"}, {"assistant", "t|x"}, {"user", "r"}, {"assistant", "s|y"}});
  REQUIRE(examples.size() == 2);
  CHECK(shown(*marks, examples[0]) ==
        "<|im_start|>user\nq<|im_end|><|im_start|>assistant\n[t|x<|im_end|>]");
  CHECK(shown(*marks, examples[1]) ==
        "<|im_start|>user\nq<|im_end|><|im_start|>assistant\nx<|im_end|>"
        "<|im_start|>user\nr<|im_end|><|im_start|>assistant\n[s|y<|im_end|>]");
}

TEST_CASE("the first special token behind an answer ends its turn", "[data]") {
  const auto marks = bytes_with({"<|channel|>", "<|end|>", "<|endoftext|>"});
  const auto chat = std::make_shared<const JinjaTemplate>(
      "{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final"
      "{% endif %}:{{ m.content }}<|end|>\n{% endfor %}"
      "{% if add_generation_prompt %}assistant{% else %}<|endoftext|>{% endif %}",
      "chat");
  CHECK(ChatEncoder(marks, chat).end_of_turn() == 1);
}

TEST_CASE("what a template of conversations refuses is said", "[data]") {
  const auto chat = std::make_shared<const JinjaTemplate>(
      "{% for m in messages %}\n{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif "
      "%}"
      "{{ m.content }}<|im_end|>{% endfor %}",
      "chat");
  ChatEncoder encoder(chatml(), chat);
  const auto error = [&](const std::string& role, const std::string& content) {
    return message_of<DataError>([&] { encoder.conversation({{role, content}}); });
  };
  CHECK(error("tool", "x") == "chat, line 2: the template says: no tools");
  CHECK(contains(error("narrator", "x"), "found 'narrator'"));
  CHECK(contains(error("user", "\U0010fffd"), "U+10FFFD"));
  const auto silent = std::make_shared<const JinjaTemplate>("{{ messages[0].content }}", "chat");
  CHECK(contains(message_of<DataError>([&] { ChatEncoder(bytes_with({"<s>"}), silent); }),
                 "writes no token after an assistant's answer"));
}

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
  CHECK(splits.note == ", by name; skipped 1 without lines of JSON, 1 of test");
}

TEST_CASE("keys that others train on are refused, and the rest is counted", "[data]") {
  const TempDir dir;
  // Returns the log note about a line, or the error.
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
  // Records with additional keys that carry no new information.
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
  // Messages with keys that the template ignores.
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
