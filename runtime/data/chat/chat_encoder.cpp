#include "shale/runtime/data/chat/chat_encoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/chat/line_keys.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_state.h"

namespace shale {
namespace {

using tokenizer_internal::AddedTokens;

constexpr const char* kAnswers = "assistant";

// Character that marks text in message content that looks like a special token, until the template
// has been rendered. It is a private-use Unicode character. Content that contains it is rejected.
constexpr std::string_view kGuard = "\xf4\x8f\xbf\xbd";  // U+10FFFD

// Tags around the part of an assistant's turn that is trained on.
constexpr std::string_view kLearnt = "{% generation %}", kLearntEnd = "{% endgeneration %}";

constexpr const char* kEachMessage = "{% for message in messages %}";

constexpr const char* kChatMlTurn =
    "{{ '<|im_start|>' ~ message.role ~ '\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content ~ '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message.content ~ '<|im_end|>' }}{% endif %}{{ '\\n' }}";

constexpr const char* kChatMlEnd =
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Qwen2.5 writes consecutive tool messages as one user turn. The text ends with an else branch,
// which writes other turns. Loop controls would be simpler, but not all programs that read exported
// templates support them.
constexpr const char* kQwenTools =
    "{% if message.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% else %}";

constexpr const char* kQwenSystem =
    "{% if not messages or messages[0].role != 'system' %}{{ '<|im_start|>system\\n"
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"
    "{% endif %}";

constexpr const char* kLlama3Turns =
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{% if message.role == 'tool' %}{{ raise_exception('llama3 has no messages of tools; "
    "use the chat template of the model, such as Llama 3.1') }}{% endif %}"
    "{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content | trim ~ '<|eot_id|>' }}{% endgeneration %}"
    "{% else %}{{ message.content | trim ~ '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

std::shared_ptr<const JinjaTemplate> template_of(const StoredTokenizer& stored,
                                                 ChatTemplate style) {
  if (resolve_chat_template(stored, style) == ChatTemplate::kAuto) {
    return std::make_shared<const JinjaTemplate>(stored.chat["chat_template"].text(),
                                                 cat("chat template of ", stored.path));
  }
  const std::string_view missing = missing_chat_token(stored, style);
  if (!missing.empty()) {
    throw DataError(cat(stored.path, ": no token ", missing,
                        ", which the chat template needs; use another --chat-template"));
  }
  return std::make_shared<const JinjaTemplate>(
      chat_template_text(resolve_chat_template(stored, style)), "built-in chat template");
}

// Returns the tokenizer's added tokens, which it cuts from text before it encodes the rest. If
// are_spelled, returns only special tokens, and they match anywhere in a text. This is for message
// content, which must not spell special tokens.
AddedTokens added_tokens(const Tokenizer& tokenizer, bool are_spelled) {
  std::vector<AddedToken> added;
  for (AddedToken token : tokenizer.spec().added) {
    if (token.text.empty() || (are_spelled && !token.special)) continue;
    if (are_spelled) token.single_word = token.lstrip = token.rstrip = false;
    added.push_back(std::move(token));
  }
  return AddedTokens(std::move(added));
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  size_t bytes = static_cast<size_t>(end - a.begin());
  // Moves back to the beginning of a UTF-8 character.
  while (bytes > 0 && bytes < b.size() && (b[bytes] & 0xc0) == 0x80) --bytes;
  return bytes;
}

}  // namespace

ChatMessage read_chat_message(const Json& message) {
  if (!message.is_object()) {
    throw DataError(
        cat("expected a message with role and content, found ", excerpt(message.dump())));
  }
  const auto fail = [&](std::string_view key, const char* want) {
    throw DataError(
        cat("'", key, "' of a message is ", excerpt(message[key].dump()), ", expected ", want));
  };
  for (const char* key : {"role", "content"}) {
    if (key == std::string_view("content") && message.contains("tool_calls") &&
        !is_nothing(message["tool_calls"]) && (!message.contains(key) || message[key].is_null())) {
      continue;
    }
    if (!message.contains(key)) throw DataError(cat("a message has no '", key, "'"));
    if (!message[key].is_string()) fail(key, "a text");
  }
  ChatMessage read{.role = message["role"].text(), .content = ""};
  for (const auto& [key, value] : message.items()) {
    if (key == "role") continue;
    // Keys with null are skipped: in files that were exported from tables, every message has every
    // key, mostly with null.
    const bool is_read = key == "content" || key == "tool_calls" || key == "reasoning_content" ||
                         key == "name" || key == "tool_call_id";
    if (value.is_null() && !is_read) continue;
    if (key == "content" && value.is_string()) {
      read.content = value.text();
    } else if (key == "weight") {
      const bool is_zero = value == Json(0) || value == Json(0.0);
      if (!is_zero && value != Json(1) && value != Json(1.0)) fail(key, "0 or 1");
      if (!is_zero && read.role != kAnswers)
        fail(key, "this key only in messages of the assistant");
      read.is_learnt = !is_zero;
    } else if (key == "tool_calls") {
      if (!value.is_array() && !value.is_null()) fail(key, "a list");
      read.more[key] = value;
    } else if (is_read && key != "content") {
      if (!value.is_string() && !value.is_null()) fail(key, "a text");
      read.more[key] = value;
    } else if (key == "content") {
      read.more[key] = value;
    } else {
      throw DataError(cat("a message has the key '", excerpt(key),
                          "', expected role, content, tool_calls, reasoning_content, name, "
                          "tool_call_id or weight"));
    }
  }
  if (read.role != kAnswers && read.more.is_object()) {
    for (const char* key : {"tool_calls", "reasoning_content"}) {
      if (read.more.contains(key) && !is_nothing(read.more[key])) {
        fail(key, "this key only in messages of the assistant");
      }
    }
  }
  return read;
}

std::vector<ChatMessage> read_chat_messages(const Json& line, std::string_view key) {
  const Json& list = line[key];
  if (list.is_string() && key == "prompt") return {{"user", list.text()}};
  if (!list.is_array() || list.empty()) {
    throw DataError(cat("'", key, "' is ", excerpt(list.dump()), ", expected a list of messages"));
  }
  std::vector<ChatMessage> all;
  for (const Json& message : list) all.push_back(read_chat_message(message));
  return all;
}

Json read_tools(const Json& line) {
  if (!line.contains("tools")) return nullptr;
  const Json& list = line["tools"];
  if (list.is_array() || list.is_null()) return list;
  throw DataError(cat("'tools' is ", excerpt(list.dump()), ", expected a list"));
}

ChatTemplate resolve_chat_template(const StoredTokenizer& stored, ChatTemplate style) {
  if (style != ChatTemplate::kAuto || !stored.chat.empty()) return style;
  const bool is_llama = stored.tokenizer.find("<|start_header_id|>").has_value();
  return is_llama ? ChatTemplate::kLlama3 : ChatTemplate::kChatMl;
}

std::string_view missing_chat_token(const StoredTokenizer& stored, ChatTemplate style) {
  std::vector<std::string_view> marks = {"<|im_start|>", "<|im_end|>"};
  switch (resolve_chat_template(stored, style)) {
    case ChatTemplate::kAuto: return {};
    case ChatTemplate::kLlama3:
      marks = {"<|start_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<|end_header_id|>"};
      break;
    case ChatTemplate::kChatMl:
    case ChatTemplate::kQwen: break;
  }
  const std::vector<AddedToken>& added = stored.tokenizer.spec().added;
  for (const std::string_view mark : marks) {
    if (std::ranges::find(added, mark, &AddedToken::text) == added.end()) return mark;
  }
  return {};
}

std::string chat_template_text(ChatTemplate style) {
  if (style == ChatTemplate::kLlama3) return kLlama3Turns;
  if (style != ChatTemplate::kQwen) return cat(kEachMessage, kChatMlTurn, kChatMlEnd);
  return cat(kQwenSystem, kEachMessage, kQwenTools, kChatMlTurn, "{% endif %}", kChatMlEnd);
}

std::string published_chat_template(std::string text) {
  constexpr std::array kStyles = {ChatTemplate::kChatMl, ChatTemplate::kLlama3,
                                  ChatTemplate::kQwen};
  if (std::ranges::find(kStyles, text, chat_template_text) == kStyles.end()) return text;
  for (const std::string_view mark : {kLearnt, kLearntEnd}) {
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark)) {
      text.erase(at, mark.size());
    }
  }
  return text;
}

void MaskedTokens::append(const std::vector<int32_t>& more, bool are_answers) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  is_answer.resize(tokens.size(), are_answers ? 1 : 0);
}

ChatEncoder::ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer, ChatTemplate style)
    : ChatEncoder(tokenizer, missing_chat_token(*tokenizer, style).empty()
                                 ? template_of(*tokenizer, style)
                                 : nullptr) {
  style_ = style;
}

ChatEncoder::ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer,
                         std::shared_ptr<const JinjaTemplate> chat)
    : tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      encoder_(tokenizer_->tokenizer),
      marks_(added_tokens(tokenizer_->tokenizer, false)),
      spelled_(added_tokens(tokenizer_->tokenizer, true)) {
  if (chat_ == nullptr) return;
  // A turn ends with the first special token after the assistant's content. Tokens that end the
  // conversation may follow it.
  const std::array<ChatMessage, 2> turns = {{{"user", "a"}, {kAnswers, "xyzzy"}}};
  const JinjaText written = rendered_turn(turns, nullptr);
  const auto [begin, end] = written.generations.back();
  const size_t content = written.text.rfind(turns[1].content, end);
  std::optional<int32_t> special, other;
  for (size_t at = content == written.text.npos ? begin : content; at < end && !special;) {
    if (marks_.empty()) break;
    const AddedTokens::Match match = marks_.find(written.text, at, true);
    at = match.end;
    if (match.token == nullptr || match.end > end) continue;
    std::optional<int32_t>& found = match.token->special ? special : other;
    if (!found) found = match.token->id;
  }
  const auto found = special ? special : other ? other : tokenizer_->end_of_document;
  if (!found) {
    throw DataError(cat(tokenizer_->path,
                        ": the chat template writes no token after an assistant's answer, expected "
                        "a special token that ends the turn"));
  }
  end_ = *found;
}

std::string ChatEncoder::guarded(const std::string& content) const {
  if (content.find(kGuard) != content.npos) {
    throw DataError("a message has the character U+10FFFD, which is not supported");
  }
  std::string out;
  for (size_t at = 0; at < content.size();) {
    const AddedTokens::Match match =
        spelled_.empty() ? AddedTokens::Match{content.size(), content.size(), nullptr}
                         : spelled_.find(content, at, true);
    size_t end = match.token == nullptr ? content.size() : match.begin + 1;
    // Moves on to the end of a UTF-8 character.
    while (end < content.size() && (content[end] & 0xc0) == 0x80) ++end;
    if (match.token != nullptr && end >= match.end) {
      throw DataError(cat("a message has the special token '", match.token->text,
                          "', a single character, which is not supported"));
    }
    out += content.substr(at, end - at);
    if (match.token != nullptr) out += kGuard;
    at = end;
  }
  return out;
}

Json ChatEncoder::guarded(const Json& value) const {
  if (value.is_string()) return Json(guarded(value.text()));
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(guarded(item));
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [key, item] : value.items()) object[guarded(key)] = guarded(item);
  return object;
}

JinjaText ChatEncoder::render(Messages messages, const Json& tools, bool add_generation_prompt,
                              std::string_view left_out) const {
  if (chat_ == nullptr) template_of(*tokenizer_, style_);  // throws
  static constexpr std::array kRoles = {"system", "user", kAnswers, "tool"};
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
      throw DataError(cat("expected the role system, user, assistant or tool, found '",
                          excerpt(message.role), "'"));
    }
    Json written = {{"role", message.role}, {"content", guarded(message.content)}};
    if (message.more.is_object()) {
      for (const auto& [key, value] : message.more.items()) {
        if (key != left_out) written[key] = guarded(value);
      }
    }
    list.push_back(std::move(written));
  }
  Json values = {{"messages", std::move(list)},
                 {"tools", guarded(tools)},
                 {"documents", nullptr},
                 {"add_generation_prompt", add_generation_prompt}};
  const auto name = [&](const char* variable, int32_t id) {
    const std::vector<int32_t> ids = {id};
    values[variable] = tokenizer_->tokenizer.decode(ids);
  };
  const std::vector<int32_t>& before = tokenizer_->tokenizer.spec().before;
  if (!before.empty()) name("bos_token", before.front());
  if (tokenizer_->end_of_document) name("eos_token", *tokenizer_->end_of_document);
  for (const auto& [key, text] : tokenizer_->chat.items()) values[key] = text;
  return chat_->render(values);
}

void ChatEncoder::check_written(Messages messages, const Json& tools) const {
  const auto fail = [](const char* key) {
    throw DataError(cat("the chat template ignores '", key,
                        "'; remove it, or use a model whose template supports it"));
  };
  if (!is_nothing(tools) &&
      render(messages, tools, false).text == render(messages, nullptr, false).text) {
    fail("tools");
  }
  for (const char* key : {"tool_calls", "reasoning_content"}) {
    if (!writes(key, messages, tools)) fail(key);
  }
}

bool ChatEncoder::writes(std::string_view key, Messages messages, const Json& tools) const {
  // Templates may omit the reasoning of earlier turns. So this renders the messages only up to the
  // last one that has `key`.
  size_t count = messages.size();
  const auto has = [key](const ChatMessage& message) {
    return message.more.is_object() && message.more.contains(key) && !is_nothing(message.more[key]);
  };
  while (count > 0 && !has(messages[count - 1])) --count;
  const Messages until = messages.first(count);
  return count == 0 || render(until, tools, false).text != render(until, tools, false, key).text;
}

JinjaText ChatEncoder::rendered_turn(Messages messages, const Json& tools) const {
  JinjaText written = render(messages, tools, false);
  const Messages before = messages.first(messages.size() - 1);
  if (chat_->marks_generations()) {
    keep_learnt(messages, before.size(), tools, written);
  } else {
    const size_t begin = common_prefix(render(before, tools, true).text, written.text);
    written.generations = {{begin, written.text.size()}};
  }
  if (written.generations.empty()) {
    throw DataError(
        "the chat template does not write the assistant's messages; use another --chat-template");
  }
  return written;
}

void ChatEncoder::keep_learnt(Messages messages, size_t first, const Json& tools,
                              JinjaText& whole) const {
  const auto is_turn = [](const ChatMessage& message) { return message.role == kAnswers; };
  const bool is_one_each =
      std::ssize(whole.generations) == std::ranges::count_if(messages, is_turn);
  std::vector<JinjaText::Range> kept;
  size_t number = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_turn(messages[i])) continue;
    const bool is_kept = i >= first && messages[i].is_learnt;
    if (is_one_each) {
      if (is_kept) kept.push_back(whole.generations[number]);
      ++number;
    } else if (is_kept) {
      const auto end_of = [&](size_t count) {
        return common_prefix(render(messages.first(count), tools, false).text, whole.text);
      };
      const size_t begin = end_of(i), end = end_of(i + 1);
      for (const JinjaText::Range& range : whole.generations) {
        if (range.begin >= begin && range.begin < end) kept.push_back(range);
      }
    }
  }
  whole.generations = std::move(kept);
}

std::vector<MaskedTokens> ChatEncoder::conversation(const std::vector<ChatMessage>& messages,
                                                    size_t first, const Json& tools) {
  check_written(messages, tools);
  JinjaText whole = render(messages, tools, false);
  if (chat_->marks_generations()) {
    const auto is_left = [](const ChatMessage& message) { return !message.is_learnt; };
    if (first > 0 || std::ranges::any_of(messages, is_left)) {
      keep_learnt(messages, first, tools, whole);
    }
    return {encode(whole)};
  }
  std::vector<MaskedTokens> examples;
  for (size_t i = first; i < messages.size(); ++i) {
    if (messages[i].role != kAnswers || !messages[i].is_learnt) continue;
    const JinjaText turn = rendered_turn(Messages(messages).first(i + 1), tools);
    if (whole.text.starts_with(turn.text)) {
      whole.generations.push_back(turn.generations.front());
    } else {
      examples.push_back(encode(turn));
    }
  }
  if (!whole.generations.empty() || examples.empty()) examples.push_back(encode(whole));
  return examples;
}

std::vector<int32_t> ChatEncoder::prompt(const std::vector<ChatMessage>& messages,
                                         const Json& tools) {
  check_written(messages, tools);
  return encode(render(messages, tools, true)).tokens;
}

MaskedTokens ChatEncoder::encode(const JinjaText& written) {
  const std::string_view text = written.text;
  const auto is_learnt = [&](size_t at) {
    return std::ranges::any_of(written.generations, [at](const JinjaText::Range& range) {
      return range.begin <= at && at < range.end;
    });
  };
  MaskedTokens all;
  for (size_t at = 0; at < text.size();) {
    const AddedTokens::Match match = marks_.empty()
                                         ? AddedTokens::Match{text.size(), text.size(), nullptr}
                                         : marks_.find(text, at, true);
    append(written, at, match.begin, all);
    if (match.token != nullptr) all.append({match.token->id}, is_learnt(match.begin));
    at = match.end;
  }
  put_before(all);
  return all;
}

MaskedTokens ChatEncoder::text(const std::string& before, const std::string& answer) {
  const JinjaText whole{before + answer, {{before.size(), before.size() + answer.size()}}};
  MaskedTokens all;
  append(whole, 0, whole.text.size(), all);
  put_before(all);
  return all;
}

std::string_view ChatEncoder::spelled(std::string_view text) const {
  const AddedToken* token = spelled_.empty() ? nullptr : spelled_.find(text, 0, true).token;
  return token == nullptr ? std::string_view() : token->text;
}

void ChatEncoder::put_before(MaskedTokens& all) const {
  all.is_answer.insert(all.is_answer.begin(), tokenizer_->tokenizer.begin_text(all.tokens), 0);
}

std::vector<int32_t> ChatEncoder::unguarded(std::string_view text, bool is_first) {
  std::string plain(text);
  for (size_t guard = plain.find(kGuard); guard != plain.npos; guard = plain.find(kGuard, guard)) {
    plain.erase(guard, kGuard.size());
  }
  return encoder_.encode(plain, {.is_first = is_first});
}

void ChatEncoder::append(const JinjaText& written, size_t begin, size_t end, MaskedTokens& to) {
  if (begin == end) return;
  const std::string_view text = written.text;
  const std::vector<std::string>& shown = tokenizer_->tokenizer.state().shown;
  // Positions are measured in bytes to which the tokens decode, because normalizers and prefix
  // spaces change the length of the text.
  const auto place_of = [&](size_t at) {
    size_t bytes = 0;
    if (at <= begin) return bytes;
    for (const int32_t id : unguarded(text.substr(begin, at - begin), begin == 0)) {
      bytes += shown[static_cast<size_t>(id)].size();
    }
    return bytes;
  };
  std::vector<JinjaText::Range> learnt;
  for (const JinjaText::Range& range : written.generations) {
    if (range.begin >= end || range.end <= begin) continue;
    learnt.push_back(
        {place_of(range.begin), range.end >= end ? std::string::npos : place_of(range.end)});
  }
  size_t at = 0;
  for (const int32_t id : unguarded(text.substr(begin, end - begin), begin == 0)) {
    const bool is_learnt = std::ranges::any_of(learnt, [at](const JinjaText::Range& range) {
      return range.begin <= at && at < range.end;
    });
    to.append({id}, is_learnt);
    at += shown[static_cast<size_t>(id)].size();
  }
}

}  // namespace shale
