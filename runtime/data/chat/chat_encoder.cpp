#include "shale/runtime/data/chat/chat_encoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

using tokenizer_internal::AddedTokens;

constexpr const char* kAnswers = "assistant";

// Breaks special tokens that content spells until the template has been rendered: a private
// character of Unicode. Content that has it is refused.
constexpr std::string_view kGuard = "\xf4\x8f\xbf\xbd";  // U+10FFFD

// Around what an assistant's turn teaches.
constexpr std::string_view kLearnt = "{% generation %}", kLearntEnd = "{% endgeneration %}";

constexpr const char* kChatMlTurns =
    "{% for message in messages %}{{ '<|im_start|>' ~ message.role ~ '\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content ~ '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message.content ~ '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr const char* kQwenSystem =
    "{% if not messages or messages[0].role != 'system' %}{{ '<|im_start|>system\\n"
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"
    "{% endif %}";

constexpr const char* kLlama3Turns =
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content | trim ~ '<|eot_id|>' }}{% endgeneration %}"
    "{% else %}{{ message.content | trim ~ '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

// In Jinja, of a style that is not kAuto.
std::string turns_of(ChatTemplate style) {
  if (style == ChatTemplate::kLlama3) return kLlama3Turns;
  return cat(style == ChatTemplate::kQwen ? kQwenSystem : "", kChatMlTurns);
}

std::shared_ptr<const JinjaTemplate> template_of(const StoredTokenizer& stored,
                                                 ChatTemplate style) {
  if (style == ChatTemplate::kAuto && !stored.chat.empty()) {
    return std::make_shared<const JinjaTemplate>(stored.chat["chat_template"].text(),
                                                 cat("chat template of ", stored.path));
  }
  const bool is_llama = stored.tokenizer.find("<|start_header_id|>").has_value();
  if (style == ChatTemplate::kAuto) {
    style = is_llama ? ChatTemplate::kLlama3 : ChatTemplate::kChatMl;
  }
  std::vector<const char*> marks = {"<|im_start|>", "<|im_end|>"};
  if (style == ChatTemplate::kLlama3) {
    marks = {"<|start_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<|end_header_id|>"};
  }
  for (const char* mark : marks) {
    if (std::ranges::find(stored.tokenizer.spec().added, mark, &AddedToken::text) !=
        stored.tokenizer.spec().added.end()) {
      continue;
    }
    throw DataError(
        cat(stored.path, ": no token ", mark,
            ", which the template of conversations needs; --chat-template names another"));
  }
  return std::make_shared<const JinjaTemplate>(turns_of(style), "built-in chat template");
}

// Tokens that are cut from text as they stand. Content may not spell the special ones, wherever the
// tokenizer would cut them.
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
  while (bytes > 0 && bytes < b.size() && (b[bytes] & 0xc0) == 0x80) --bytes;  // whole characters
  return bytes;
}

}  // namespace

std::string chat_template_text(ChatTemplate style) {
  std::string text = turns_of(style);
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
    : ChatEncoder(tokenizer, template_of(*tokenizer, style)) {}

ChatEncoder::ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer,
                         std::shared_ptr<const JinjaTemplate> chat)
    : tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      encoder_(tokenizer_->tokenizer),
      marks_(added_tokens(tokenizer_->tokenizer, false)),
      spelled_(added_tokens(tokenizer_->tokenizer, true)) {
  // The last of these tokens that a turn of the assistant writes ends it.
  const std::array<ChatMessage, 2> turns = {{{"user", "a"}, {kAnswers, "b"}}};
  const JinjaText written = rendered_turn(turns);
  const auto [begin, end] = written.generations.back();
  std::optional<int32_t> found = tokenizer_->end_of_document;
  for (size_t at = begin; at < end && !marks_.empty();) {
    const AddedTokens::Match match = marks_.find(written.text, at, true);
    if (match.token != nullptr && match.end <= end) found = match.token->id;
    at = match.end;
  }
  if (!found) {
    throw DataError(cat(tokenizer_->path, ": no token ends a turn of the assistant"));
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
    while (end < content.size() && (content[end] & 0xc0) == 0x80) ++end;  // behind a character
    if (match.token != nullptr && end >= match.end) {
      throw DataError(cat("a message has the special token '", match.token->text, "'"));
    }
    out += content.substr(at, end - at);
    if (match.token != nullptr) out += kGuard;
    at = end;
  }
  return out;
}

JinjaText ChatEncoder::render(Messages messages, bool add_generation_prompt) const {
  static constexpr std::array kRoles = {"system", "user", kAnswers, "tool"};
  Json list = Json::array();
  for (const auto& [role, content] : messages) {
    if (std::ranges::find(kRoles, role) == kRoles.end()) {
      throw DataError(
          cat("expected the role system, user, assistant or tool, found '", excerpt(role), "'"));
    }
    list.push_back({{"role", role}, {"content", guarded(content)}});
  }
  Json values = {{"messages", std::move(list)},
                 {"tools", nullptr},
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

JinjaText ChatEncoder::rendered_turn(Messages messages) const {
  JinjaText written = render(messages, false);
  const Messages before = messages.first(messages.size() - 1);
  if (chat_->marks_generations()) {
    const size_t begin = common_prefix(render(before, false).text, written.text);
    std::erase_if(written.generations, [begin](const auto& range) { return range.begin < begin; });
  } else {
    const size_t begin = common_prefix(render(before, true).text, written.text);
    written.generations = {{begin, written.text.size()}};
  }
  if (written.generations.empty()) {
    throw DataError("the template writes nothing that the assistant says");
  }
  return written;
}

std::vector<MaskedTokens> ChatEncoder::conversation(const std::vector<ChatMessage>& messages) {
  JinjaText whole = render(messages, false);
  if (chat_->marks_generations()) return {encode(whole)};
  std::vector<MaskedTokens> examples;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != kAnswers) continue;
    const JinjaText turn = rendered_turn(Messages(messages).first(i + 1));
    if (whole.text.starts_with(turn.text)) {
      whole.generations.push_back(turn.generations.front());
    } else {
      examples.push_back(encode(turn));
    }
  }
  if (!whole.generations.empty() || examples.empty()) examples.push_back(encode(whole));
  return examples;
}

MaskedTokens ChatEncoder::last_answer(const std::vector<ChatMessage>& messages) {
  return encode(rendered_turn(messages));
}

std::vector<int32_t> ChatEncoder::prompt(const std::vector<ChatMessage>& messages) {
  return encode(render(messages, true)).tokens;
}

MaskedTokens ChatEncoder::encode(const JinjaText& written) {
  const std::string_view text = written.text;
  MaskedTokens all;
  size_t at = 0;
  for (const auto& [begin, end] : written.generations) {
    append(text.substr(at, begin - at), false, all);
    append(text.substr(begin, end - begin), true, all);
    at = end;
  }
  append(text.substr(at), false, all);
  return all;
}

void ChatEncoder::append(std::string_view text, bool is_answer, MaskedTokens& to) {
  for (size_t at = 0; at < text.size();) {
    const AddedTokens::Match match = marks_.empty()
                                         ? AddedTokens::Match{text.size(), text.size(), nullptr}
                                         : marks_.find(text, at, true);
    std::string plain(text.substr(at, match.begin - at));
    for (size_t guard = plain.find(kGuard); guard != plain.npos;
         guard = plain.find(kGuard, guard)) {
      plain.erase(guard, kGuard.size());
    }
    to.append(encoder_.encode(plain), is_answer);
    if (match.token != nullptr) to.append({match.token->id}, is_answer);
    at = match.end;
  }
}

}  // namespace shale
