#include "shale/runtime/data/chat/line_keys.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale {
namespace {

enum class Meaning {
  kPrompt,  // part of the prompt, or changes how the prompt is rendered
  kAnswer,  // part of the text to train on
  kWeight,  // weight of the line; only true and 1, the default, are accepted
  kFlag,    // flag; only the value false is rejected; numbers and strings are metadata
};

struct KnownKey {
  std::string_view key;
  Meaning meaning;
  const char* instead;  // advice for the error message: what to do instead
};

constexpr const char* kOneOfThem = "keep one of them";
constexpr const char* kAsMessage = "put it into the messages";
constexpr const char* kInMessages = "it needs a conversation ('messages', or lists of messages)";
constexpr const char* kTextOnly = "only text is supported: remove the key or the line";
constexpr const char* kByTemplate = "remove it, and write what it asks for into the messages";
constexpr const char* kByMessage =
    "give messages of the assistant a 'weight' of 0 or 1, or remove the line";
constexpr const char* kTokens = "remove it: Shale makes tokens and masks from the text";

// Keys that trl, axolotl, LLaMA-Factory, ms-swift and OpenAI's fine-tuning read in addition to a
// conversation.
constexpr KnownKey kKnownKeys[] = {
    {"messages", Meaning::kPrompt, kOneOfThem},
    {"prompt", Meaning::kPrompt, kOneOfThem},
    {"conversations", Meaning::kPrompt, kOneOfThem},
    {"conversation", Meaning::kPrompt, kOneOfThem},
    {"history", Meaning::kPrompt, kAsMessage},
    {"system", Meaning::kPrompt, kAsMessage},
    {"system_prompt", Meaning::kPrompt, kAsMessage},
    {"system_message", Meaning::kPrompt, kAsMessage},
    {"tools", Meaning::kPrompt, kInMessages},
    {"functions", Meaning::kPrompt, "rename it to 'tools'"},
    {"tool_choice", Meaning::kPrompt, kByTemplate},
    {"parallel_tool_calls", Meaning::kFlag, kByTemplate},
    {"documents", Meaning::kPrompt, kByTemplate},
    {"chat_template", Meaning::kPrompt, "remove it: --chat-template or the model's folder sets it"},
    {"chat_template_kwargs", Meaning::kPrompt, kByTemplate},
    {"enable_thinking", Meaning::kPrompt, kByTemplate},
    {"image", Meaning::kPrompt, kTextOnly},
    {"images", Meaning::kPrompt, kTextOnly},
    {"video", Meaning::kPrompt, kTextOnly},
    {"videos", Meaning::kPrompt, kTextOnly},
    {"audio", Meaning::kPrompt, kTextOnly},
    {"audios", Meaning::kPrompt, kTextOnly},
    {"text", Meaning::kAnswer, kOneOfThem},
    {"completion", Meaning::kAnswer, kOneOfThem},
    {"tool_calls", Meaning::kAnswer, kAsMessage},
    {"function_call", Meaning::kAnswer, "put it into a message as 'tool_calls'"},
    {"reasoning_content", Meaning::kAnswer, kAsMessage},
    {"input_ids", Meaning::kAnswer, kTokens},
    {"labels", Meaning::kAnswer, kTokens},
    {"loss_mask", Meaning::kAnswer, kTokens},
    {"completion_mask", Meaning::kAnswer, kTokens},
    {"assistant_masks", Meaning::kAnswer, kTokens},
    {"weight", Meaning::kWeight, kByMessage},
    {"loss_weight", Meaning::kWeight, kByMessage},
    {"sample_weight", Meaning::kWeight, kByMessage},
    {"train", Meaning::kWeight, kByMessage},
    {"label", Meaning::kFlag, "remove lines whose answers are not wanted"},
    {"kto_tag", Meaning::kFlag, "remove lines whose answers are not wanted"},
};

bool says_nothing_new(const Json& value, Meaning meaning) {
  if (meaning == Meaning::kFlag) return value != Json(false);
  if (meaning == Meaning::kWeight) {
    return value == Json(true) || value == Json(1) || value == Json(1.0);
  }
  return false;
}

// Returns true if `value` repeats `read`: a part of its string, the content of one of its messages,
// or the beginning of its list of messages.
bool repeats(const Json& value, const Json& read) {
  if (value.is_array() && read.is_array()) {
    return value.size() <= read.size() && std::equal(value.begin(), value.end(), read.begin());
  }
  if (!value.is_string()) return false;
  const std::string_view text = jinja::strip(value.text(), jinja::Side::kBoth);
  if (read.is_string()) return read.text().find(text) != std::string::npos;
  return read.is_array() && std::ranges::any_of(read, [text](const Json& message) {
           return message.is_object() && message.contains("content") &&
                  message["content"].is_string() &&
                  jinja::strip(message["content"].text(), jinja::Side::kBoth) == text;
         });
}

}  // namespace

bool is_nothing(const Json& value) {
  return value.is_null() || (value.is_string() && value.text().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void check_line_keys(const Json& line, const std::vector<std::string_view>& read, LineUse use,
                     std::map<std::string, int64_t>& ignored) {
  for (const auto& [name, value] : line.items()) {
    const std::string_view key = name;
    if (std::ranges::find(read, key) != read.end()) continue;
    const auto* known = std::ranges::find(kKnownKeys, key, &KnownKey::key);
    const auto is_repeated = [&](std::string_view of) {
      return line.contains(of) && repeats(value, line[of]);
    };
    if (known != std::end(kKnownKeys) && !is_nothing(value) &&
        !says_nothing_new(value, known->meaning) && !std::ranges::any_of(read, is_repeated) &&
        (use == LineUse::kExample || known->meaning == Meaning::kPrompt)) {
      throw DataError(cat("the key '", key, "' (", excerpt(value.dump()), ") beside '",
                          read.front(), "' is not supported: ", known->instead));
    }
    ++ignored[name];
  }
}

}  // namespace shale
