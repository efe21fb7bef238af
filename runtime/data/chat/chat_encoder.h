#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/jinja/jinja.h"
#include "shale/runtime/data/text/tokenizer/added_tokens.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // Other members that the template may use, such as tool_calls. A content of null is here, too.
  Json more = nullptr;
  bool is_learnt = true;  // true: train on this turn, if its role is "assistant"
};

// Reads a message of a JSON list. Keys: role; content (a string; may be null or absent if there are
// tool_calls); optional tool_calls, reasoning_content, name, tool_call_id, and weight (0: not
// trained on, or 1). Throws DataError, with the key, for other, missing or malformed keys.
ChatMessage read_chat_message(const Json& message);
// Reads the messages under a key of a JSON line. The value is a list of messages. Under "prompt" it
// may also be a string, the text of a user message. Throws DataError for anything else.
std::vector<ChatMessage> read_chat_messages(const Json& line, std::string_view key);
// Reads the key "tools" of a JSON line: a list or null. Throws DataError for anything else.
Json read_tools(const Json& line);

// Chat template for rendering conversations.
enum class ChatTemplate {
  // the model's own template; without one, kLlama3 or kChatMl, whichever fits the tokenizer's
  // special tokens
  kAuto,
  kChatMl,  // <|im_start|>ROLE \n CONTENT <|im_end|> \n
  // <|begin_of_text|>, then <|start_header_id|>ROLE<|end_header_id|> \n\n CONTENT <|eot_id|>, with
  // white space stripped around CONTENT.
  kLlama3,
  // kChatMl with Qwen2.5's format of tool messages, and with its system message in conversations
  // without one.
  kQwen,
};

// Replaces kAuto by the template to use. Returns kAuto unchanged if the tokenizer comes with a chat
// template.
ChatTemplate resolve_chat_template(const StoredTokenizer& stored, ChatTemplate style);
// Returns the first token that the template needs and the tokenizer lacks. Empty if none is
// missing, or if the tokenizer's own template is used.
std::string_view missing_chat_token(const StoredTokenizer& stored, ChatTemplate style);

// Returns the text of a built-in template in Jinja; that of kChatMl for kAuto.
std::string chat_template_text(ChatTemplate style);
// Removes the generation blocks of a built-in template, because few programs support them. Returns
// other templates unchanged.
std::string published_chat_template(std::string text);

// A token sequence with a mask of the tokens to train on.
struct MaskedTokens {
  std::vector<int32_t> tokens;
  // for each token, 1 if it is part of an answer and has a loss, else 0
  std::vector<uint8_t> is_answer;

  void append(const std::vector<int32_t>& more, bool are_answers);
};

// Tokenizes conversations with a Jinja chat template. Special tokens of the template are encoded as
// single tokens. Text in message content that spells a special token is encoded as ordinary text,
// so content cannot end a turn. The text between two special tokens is tokenized as a whole. A
// token is trained on if it begins within an answer. The tokens that the tokenizer puts before a
// text occur exactly once, whether or not the template writes them.
class ChatEncoder {
 public:
  // Uses the template that `style` selects. If missing_chat_token() names a token, conversation()
  // and prompt() throw DataError, with the tokenizer's path and that token. text() works, because
  // it needs no template.
  ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer, ChatTemplate style);
  // Uses a model's own template. Its variables are messages, add_generation_prompt, tools,
  // documents (null), and those of bos_token, eos_token and so on that the tokenizer has. Throws
  // DataError if the template does not write a user's and an assistant's turn.
  ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer,
              std::shared_ptr<const JinjaTemplate> chat);

  // Tokenizes a conversation. Answers are the assistant's turns with is_learnt, from message
  // `first` on. An answer is the text of the template's generation blocks. Without these, it is the
  // text that the turn adds to the preceding conversation rendered with add_generation_prompt.
  //
  // Usually the result is one example. A template may write a turn differently when later turns
  // follow, such as without its reasoning; then a separate example ends with that turn. tools:
  // variable of the template. Throws DataError for a role not listed at ChatMessage, for errors
  // that the template raises, and for tools, tool_calls and reasoning_content that the template
  // does not write.
  std::vector<MaskedTokens> conversation(const std::vector<ChatMessage>& messages, size_t first = 0,
                                         const Json& tools = nullptr);
  // Returns the tokens of the conversation up to the beginning of the assistant's next turn.
  std::vector<int32_t> prompt(const std::vector<ChatMessage>& messages,
                              const Json& tools = nullptr);
  // Returns true if the template writes this optional key of messages, or if no message has it.
  bool writes(std::string_view key, std::span<const ChatMessage> messages, const Json& tools) const;
  // Tokenizes plain text, without a template: the text `before`, followed by the answer.
  MaskedTokens text(const std::string& before, const std::string& answer);
  // Returns the first special token that `text` spells; empty if there is none. It is encoded as
  // ordinary text.
  std::string_view spelled(std::string_view text) const;

  // Token that ends a turn; nullopt without a template.
  std::optional<int32_t> end_of_turn() const { return end_; }

 private:
  using Messages = std::span<const ChatMessage>;

  // Renders the messages without their key `left_out`.
  JinjaText render(Messages messages, const Json& tools, bool add_generation_prompt,
                   std::string_view left_out = {}) const;
  // Renders the messages. The result's generations mark the text that the last message adds.
  JinjaText rendered_turn(Messages messages, const Json& tools) const;
  // Keeps only the generation blocks of turns that are trained on.
  void keep_learnt(Messages messages, size_t first, const Json& tools, JinjaText& whole) const;
  void check_written(Messages messages, const Json& tools) const;
  std::string guarded(const std::string& content) const;
  Json guarded(const Json& value) const;
  MaskedTokens encode(const JinjaText& written);
  // Appends the tokens of bytes [begin, end) of the text. These bytes contain no added tokens.
  void append(const JinjaText& written, size_t begin, size_t end, MaskedTokens& to);
  std::vector<int32_t> unguarded(std::string_view text, bool is_first);
  void put_before(MaskedTokens& all) const;

  std::shared_ptr<const StoredTokenizer> tokenizer_;
  std::shared_ptr<const JinjaTemplate> chat_;
  TokenEncoder encoder_;
  tokenizer_internal::AddedTokens marks_;    // added tokens that the tokenizer cuts from text
  tokenizer_internal::AddedTokens spelled_;  // special tokens that message content may spell
  std::optional<int32_t> end_;               // token that ends a turn
  ChatTemplate style_ = ChatTemplate::kAuto;
};

}  // namespace shale
