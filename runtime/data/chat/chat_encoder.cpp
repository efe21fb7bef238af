#include "shale/runtime/data/chat/chat_encoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

constexpr const char* kAnswers = "assistant";
constexpr const char* kQwenSystem =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

int32_t find_mark(const StoredTokenizer& stored, const char* text) {
  if (const std::optional<int32_t> id = stored.tokenizer.find(text)) return *id;
  throw DataError(
      cat(stored.path, ": no token ", text,
          ", which the template of conversations wants; --chat-template names another"));
}

ChatTemplate chosen(const StoredTokenizer& stored, ChatTemplate style) {
  if (style != ChatTemplate::kAuto) return style;
  const bool is_llama = stored.tokenizer.find("<|start_header_id|>").has_value();
  return is_llama ? ChatTemplate::kLlama3 : ChatTemplate::kChatMl;
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

void MaskedTokens::append(const std::vector<int32_t>& more, bool are_answers) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  is_answer.resize(tokens.size(), are_answers ? 1 : 0);
}

ChatEncoder::ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer, ChatTemplate style)
    : tokenizer_(std::move(tokenizer)),
      encoder_(tokenizer_->tokenizer),
      style_(chosen(*tokenizer_, style)) {
  const bool is_llama = style_ == ChatTemplate::kLlama3;
  start_ = find_mark(*tokenizer_, is_llama ? "<|start_header_id|>" : "<|im_start|>");
  end_ = find_mark(*tokenizer_, is_llama ? "<|eot_id|>" : "<|im_end|>");
  if (!is_llama) return;
  begin_ = find_mark(*tokenizer_, "<|begin_of_text|>");
  header_end_ = find_mark(*tokenizer_, "<|end_header_id|>");
}

void ChatEncoder::begin(const std::vector<ChatMessage>& messages, MaskedTokens& to) {
  if (style_ == ChatTemplate::kLlama3) to.append({begin_}, false);
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (style_ == ChatTemplate::kQwen && !has_system) turn({"system", kQwenSystem}, to);
}

void ChatEncoder::introduce(const std::string& role, MaskedTokens& to) {
  to.append({start_}, false);
  if (style_ != ChatTemplate::kLlama3) return to.append(encoder_.encode(role + "\n"), false);
  to.append(encoder_.encode(role), false);
  to.append({header_end_}, false);
  to.append(encoder_.encode("\n\n"), false);
}

void ChatEncoder::turn(const ChatMessage& message, MaskedTokens& to) {
  static constexpr std::array kRoles = {"system", "user", kAnswers, "tool"};
  if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end()) {
    throw DataError(
        cat("the role '", excerpt(message.role), "', want system, user, ", kAnswers, " or tool"));
  }
  const bool is_answer = message.role == kAnswers;
  const bool is_llama = style_ == ChatTemplate::kLlama3;
  const std::string content = is_llama ? trimmed(message.content) : message.content;
  if (is_answer) {
    introduce(message.role, to);
    to.append(encoder_.encode(content), true);
  } else if (is_llama) {
    to.append({start_}, false);
    to.append(encoder_.encode(message.role), false);
    to.append({header_end_}, false);
    to.append(encoder_.encode("\n\n" + content), false);
  } else {
    to.append({start_}, false);
    to.append(encoder_.encode(message.role + "\n" + content), false);
  }
  to.append({end_}, is_answer);
  if (!is_llama) to.append(encoder_.encode("\n"), false);
}

MaskedTokens ChatEncoder::conversation(const std::vector<ChatMessage>& messages) {
  MaskedTokens all;
  begin(messages, all);
  for (const ChatMessage& message : messages) turn(message, all);
  return all;
}

std::vector<int32_t> ChatEncoder::prompt(const std::vector<ChatMessage>& messages) {
  MaskedTokens all = conversation(messages);
  introduce(kAnswers, all);
  return std::move(all.tokens);
}

}  // namespace shale
