#include "shale/runtime/data/chat/chat_encoder.h"

#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"
#include "shale/test/support/tokenizers.h"

namespace shale {

using test::bytes_with;
using test::chatml;
using test::contains;
using test::message_of;
using test::TempDir;

namespace {

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
  // Text that is spelled like a special token is encoded as ordinary text, so only the template's
  // four tokens count.
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
    // A token that spans two parts of the text belongs to the part in which it begins.
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
  // This template drops reasoning, which is the text before '|', from all turns except the last.
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

}  // namespace shale
