#include "shale/models/language/text_model.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/models/language/find_tokenizer.h"

namespace shale::models {
namespace {

// Text that grows while it is generated. It never ends within a character, and excludes the stop
// string.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, std::string stop)
      : decoder_(tokenizer, /*show_special=*/false), stop_(std::move(stop)) {}

  // Appends a token. Returns false if the stop string has been generated, which ends the text.
  bool push(int32_t token) {
    text_ += decoder_.push(token);
    if (stop_.empty()) return true;
    const size_t at = text_.find(stop_, searched_);
    if (at == text_.npos) {
      searched_ = text_.size() - std::min(text_.size(), stop_.size() - 1);
      return true;
    }
    text_.resize(at);
    stopped_ = true;
    return false;
  }
  // Returns the text since the last call. Unless `all`, holds back the last characters, because
  // they may be the beginning of the stop string.
  std::string take(bool all) {
    const size_t kept = all || stop_.empty() ? 0 : stop_.size() - 1;
    const size_t end = std::max(taken_, text_.size() - std::min(text_.size(), kept));
    std::string part = text_.substr(taken_, end - taken_);
    taken_ = end;
    return part;
  }
  const std::string& finish() {
    if (!stopped_) text_ += decoder_.finish();
    return text_;
  }

 private:
  StreamDecoder decoder_;
  std::string stop_, text_;
  size_t searched_ = 0, taken_ = 0;
  bool stopped_ = false;
};

std::shared_ptr<const StoredTokenizer> tokenizer_of(const std::string& path,
                                                    const std::string& file,
                                                    const LanguageModelConfig& config) {
  std::shared_ptr<const StoredTokenizer> tokenizer =
      file.empty() ? open_model_tokenizer(path) : read_tokenizer(file);
  if (tokenizer == nullptr && config.vocab == 256) tokenizer = byte_tokenizer();
  if (tokenizer == nullptr) {
    throw ConfigError(cat(path, ": no tokenizer found for the vocabulary of ", config.vocab,
                          " tokens; use --tokenizer FILE"));
  }
  if (tokenizer->tokenizer.vocab_size() > config.vocab) {
    throw DataError(cat(tokenizer->path, ": ", tokenizer->tokenizer.vocab_size(),
                        " tokens, but the model's vocabulary has ", config.vocab,
                        "; use the tokenizer of the model"));
  }
  return tokenizer;
}

}  // namespace

TextModel load_text_model(const std::string& path, const std::string& tokenizer,
                          std::shared_ptr<Context> context, Precision dtype) {
  const std::unique_ptr<StoredModel> stored = open_model(path);
  TextModel loaded;
  loaded.tokenizer = tokenizer_of(path, tokenizer, stored->config());
  const std::string origin = newest_checkpoint(path).value_or(path);
  HfExtras extras = read_extras(origin);
  if (!tokenizer.empty()) {
    extras = extras_of_tokenizer(std::move(extras), origin, tokenizer, *loaded.tokenizer);
  }
  loaded.ends = special_tokens(extras, loaded.tokenizer.get()).ends;
  if (const auto end = loaded.tokenizer->end_of_document) loaded.ends.push_back(*end);
  const DType type = dtype_of_flag(dtype, context->device());
  loaded.model = load_model(*stored, *context, type);
  int64_t count = 0;
  for (const Parameter* parameter : loaded.model->parameters()) count += parameter->numel();
  loaded.description = cat(stored->config().family, ", ", count, " parameters, on ",
                           context->device(), " in ", dtype_name(type));
  loaded.context = std::move(context);
  return loaded;
}

TextGenerator::TextGenerator(TextModel& model, std::optional<ChatTemplate> style, std::string stop)
    : model_(model), stop_(std::move(stop)) {
  if (style) chat_.emplace(model.tokenizer, *style);
}

std::vector<int32_t> TextGenerator::encode(const std::string& text) const {
  return encode_prompt(*model_.tokenizer, text);
}

std::vector<int32_t> TextGenerator::encode(const std::vector<ChatMessage>& messages,
                                           const Json& tools) {
  return chat_->prompt(messages, tools);
}

bool TextGenerator::ends(int32_t token) const {
  return std::ranges::find(model_.ends, token) != model_.ends.end() ||
         (chat_ && token == chat_->end_of_turn()) || !model_.tokenizer->tokenizer.has(token);
}

std::string TextGenerator::generate(const std::vector<int32_t>& prompt,
                                    const GenerateOptions& options,
                                    const std::function<bool(const std::string& part)>& show) {
  GrowingText text(model_.tokenizer->tokenizer, stop_);
  bool wanted = true;
  models::generate_all(*model_.model, *model_.context, {prompt}, options, number_++,
                       [&](size_t, int32_t token) {
                         if (ends(token)) return false;
                         const bool more = text.push(token);
                         wanted = show(text.take(!more));
                         return more && wanted;
                       });
  const std::string all = text.finish();
  if (wanted) show(text.take(true));
  return all;
}

std::vector<std::string> TextGenerator::generate_all(
    const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options) {
  std::vector<GrowingText> texts(prompts.size(), GrowingText(model_.tokenizer->tokenizer, stop_));
  models::generate_all(
      *model_.model, *model_.context, prompts, options, number_,
      [&](size_t i, int32_t token) { return !ends(token) && texts[i].push(token); });
  number_ += std::ssize(prompts);
  std::vector<std::string> all;
  for (GrowingText& text : texts) all.push_back(text.finish());
  return all;
}

}  // namespace shale::models
