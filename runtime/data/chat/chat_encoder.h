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
  // Further members as the template reads them, such as tool_calls; a content that is null.
  Json more = nullptr;
  bool is_learnt = true;  // whether an assistant's turn is learnt
};

// A message of a list in JSON: role and content (a text; null or left out beside tool_calls), and
// tool_calls, reasoning_content, name, tool_call_id, weight (0: not learnt, or 1). Throws DataError
// that names a key which is another, missing or malformed.
ChatMessage read_chat_message(const Json& message);
// Those of a line of JSON under a key: a list of messages, or the text of a user under "prompt".
// Throws DataError for anything else.
std::vector<ChatMessage> read_chat_messages(const Json& line, std::string_view key);
// The tools of a line of JSON: a list, or null. Throws DataError for anything else.
Json read_tools(const Json& line);

// How a conversation is written.
enum class ChatTemplate {
  kAuto,    // the model's own; else what the tokenizer has the tokens of: kLlama3, else kChatMl
  kChatMl,  // <|im_start|>ROLE \n CONTENT <|im_end|> \n
  kLlama3,  // <|begin_of_text|>, then <|start_header_id|>ROLE<|end_header_id|> \n\n CONTENT
            // <|eot_id|>, contents without white space around them
  kQwen,    // kChatMl, and a conversation without a system message begins with Qwen2.5's
};

// The style that conversations of this tokenizer are written in; kAuto only if it comes with a
// template of its own.
ChatTemplate resolve_chat_template(const StoredTokenizer& stored, ChatTemplate style);
// The first token that the style needs and the tokenizer lacks. Empty: it has all, or the template
// is its own.
std::string_view missing_chat_token(const StoredTokenizer& stored, ChatTemplate style);

// A built-in template in Jinja. Of kAuto that of kChatMl.
std::string chat_template_text(ChatTemplate style);
// A built-in template without the blocks that say what is learnt, which few programs know; another
// one as it is.
std::string published_chat_template(std::string text);

// A sequence and which of its tokens a model is to predict.
struct MaskedTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_answer;  // 1: a token that the model says

  void append(const std::vector<int32_t>& more, bool are_answers);
};

// Conversations as tokens, as a template in Jinja writes them. Special tokens of the template are
// single tokens, and content that spells one does not become it: nobody ends a turn but the one who
// has it. Between special tokens the text is tokenized whole: a token is learnt if it begins in an
// answer. The tokens that the tokenizer puts before a text are there once, whether or not the
// template writes them.
class ChatEncoder {
 public:
  // Texts need no template: if missing_chat_token() names one, conversation() and prompt() throw
  // DataError, starting with the tokenizer's path, that names it.
  ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer, ChatTemplate style);
  // A model's own template. Its variables are messages, add_generation_prompt, tools and documents
  // (none), and bos_token, eos_token and so on if the tokenizer has them. Throws DataError if it
  // does not write a user's and an assistant's turn.
  ChatEncoder(std::shared_ptr<const StoredTokenizer> tokenizer,
              std::shared_ptr<const JinjaTemplate> chat);

  // The assistant's turns from message `first` on as answers, but those that are not learnt: what
  // the template's generation blocks write. If it has none, what a turn adds to the conversation
  // before it with add_generation_prompt. A turn that the template writes otherwise once others
  // follow it, such as without its reasoning, is an example of its own, which ends with it.
  // `tools`: the template's variable. Throws DataError for a role that is none of ChatMessage's,
  // for what the template refuses, and for tools, tool_calls and reasoning_content that it does not
  // write.
  std::vector<MaskedTokens> conversation(const std::vector<ChatMessage>& messages, size_t first = 0,
                                         const Json& tools = nullptr);
  // The conversation up to where the assistant's next turn begins.
  std::vector<int32_t> prompt(const std::vector<ChatMessage>& messages,
                              const Json& tools = nullptr);
  // Whether the template writes this member of messages, which may have any; true if none has it.
  bool writes(std::string_view key, std::span<const ChatMessage> messages, const Json& tools) const;
  // A text as it stands, without marks, and what follows it as the answer.
  MaskedTokens text(const std::string& before, const std::string& answer);
  // The first special token that a text spells, which it does not become. Empty: none.
  std::string_view spelled(std::string_view text) const;

  // None without a template.
  std::optional<int32_t> end_of_turn() const { return end_; }

 private:
  using Messages = std::span<const ChatMessage>;

  // Without the members of messages that are named `left_out`.
  JinjaText render(Messages messages, const Json& tools, bool add_generation_prompt,
                   std::string_view left_out = {}) const;
  // What the last message adds, in a text that ends with it.
  JinjaText rendered_turn(Messages messages, const Json& tools) const;
  // Keeps those of the generation blocks that turns which are learnt wrote.
  void keep_learnt(Messages messages, size_t first, const Json& tools, JinjaText& whole) const;
  void check_written(Messages messages, const Json& tools) const;
  std::string guarded(const std::string& content) const;
  Json guarded(const Json& value) const;
  MaskedTokens encode(const JinjaText& written);
  // Appends bytes [begin, end) of the text, in which there are no marks.
  void append(const JinjaText& written, size_t begin, size_t end, MaskedTokens& to);
  std::vector<int32_t> unguarded(std::string_view text, bool is_first);
  void put_before(MaskedTokens& all) const;

  std::shared_ptr<const StoredTokenizer> tokenizer_;
  std::shared_ptr<const JinjaTemplate> chat_;
  TokenEncoder encoder_;
  tokenizer_internal::AddedTokens marks_;    // added tokens, as the tokenizer cuts them
  tokenizer_internal::AddedTokens spelled_;  // special ones, as content may spell them
  std::optional<int32_t> end_;               // of a turn
  ChatTemplate style_ = ChatTemplate::kAuto;
};

}  // namespace shale
