#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

// How a conversation is written.
enum class ChatTemplate {
  kAuto,    // what the tokenizer has the tokens of: kLlama3, else kChatMl
  kChatMl,  // <|im_start|>ROLE \n CONTENT <|im_end|> \n
  kLlama3,  // <|begin_of_text|>, then <|start_header_id|>ROLE<|end_header_id|> \n\n CONTENT
            // <|eot_id|>, contents without white space around them
  kQwen,    // kChatMl, and a conversation without a system message begins with Qwen2.5's
};

// A sequence and which of its tokens a model is to predict.
struct MaskedTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_answer;  // 1: a token that the model says

  void append(const std::vector<int32_t>& more, bool are_answers);
};

// Conversations as tokens. Marks are single tokens, and text that spells one does not become it:
// nobody ends a turn but the one who has it. What introduces an answer, "assistant" and what is
// around it, is encoded apart from the answer, as it is where a model continues it.
class ChatEncoder {
 public:
  // Throws DataError, starting with the tokenizer's path, if it lacks a token of the template.
  ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer, ChatTemplate style);

  // Answers are the contents of the assistant's turns, and the mark that ends each.
  // Throws DataError for a role that is none of ChatMessage's.
  MaskedTokens conversation(const std::vector<ChatMessage>& messages);
  // The conversation up to where the assistant's next turn begins.
  std::vector<int32_t> prompt(const std::vector<ChatMessage>& messages);
  // Text as it stands, without marks.
  std::vector<int32_t> text(const std::string& text) { return encoder_.encode(text); }

  int32_t end_of_turn() const { return end_; }

 private:
  void begin(const std::vector<ChatMessage>& messages, MaskedTokens& to);
  void turn(const ChatMessage& message, MaskedTokens& to);
  void introduce(const std::string& role, MaskedTokens& to);

  std::shared_ptr<const StoredTokenizer> tokenizer_;
  TokenEncoder encoder_;
  ChatTemplate style_;
  int32_t start_ = 0, end_ = 0;         // of a turn
  int32_t begin_ = 0, header_end_ = 0;  // of kLlama3
};

}  // namespace shale
