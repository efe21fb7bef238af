#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/models/language/generate.h"
#include "shale/models/language/model.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/data/chat/chat_encoder.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// A trained language model with its tokenizer.
struct TextModel {
  std::string description;  // for example "llama, 134515008 parameters, on cpu in fp32"
  std::shared_ptr<const StoredTokenizer> tokenizer;
  std::vector<int64_t> ends;  // tokens that end a text; the model's files may list several
  std::shared_ptr<Context> context;
  std::unique_ptr<LanguageModel> model;  // must be destroyed before the context
};

// Loads the whole model at `path`, which is a Hugging Face folder, a checkpoint or a run.
// tokenizer: file; empty: the model's own tokenizer or, without one, bytes for a vocabulary of 256.
// Throws ConfigError for a model without a tokenizer, DataError for a tokenizer of another model,
// and as open_model().
TextModel load_text_model(const std::string& path, const std::string& tokenizer,
                          std::shared_ptr<Context> context, Precision dtype);

// Generates texts with a model, which must outlive it.
class TextGenerator {
 public:
  // style: template for conversations; none: prompts are plain text, and the model does not end
  // turns. stop: text at which generation stops; the generated text excludes it.
  TextGenerator(TextModel& model, std::optional<ChatTemplate> style, std::string stop = {});

  std::vector<int32_t> encode(const std::string& text) const;
  // Returns the tokens of a conversation, up to the point where the assistant's next turn begins.
  std::vector<int32_t> encode(const std::vector<ChatMessage>& messages,
                              const Json& tools = nullptr);
  // Returns `prompt`. Throws Problem, an Error whose message calls the prompt `what`, if the
  // context has no room for another token.
  template <typename Problem>
  std::vector<int32_t> fitting(std::vector<int32_t> prompt, std::string_view what) const {
    const int64_t context = model_.model->config().context;
    if (std::ssize(prompt) < context) return prompt;
    throw Problem(cat(what, " has ", prompt.size(), " tokens, expected at most ", context - 1,
                      ": the model's context of ", context, " must hold an answer too"));
  }

  // Continues a prompt and returns the complete new text. Calls `show` with each new part of the
  // text; generation stops when it returns false.
  std::string generate(const std::vector<int32_t>& prompt, const GenerateOptions& options,
                       const std::function<bool(const std::string& part)>& show);
  // Continues several prompts in one batch.
  std::vector<std::string> generate_all(const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options);

 private:
  bool ends(int32_t token) const;

  TextModel& model_;
  std::optional<ChatEncoder> chat_;
  const std::string stop_;
  int64_t number_ = 0;  // index of the next prompt
};

}  // namespace shale::models
