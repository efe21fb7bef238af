// Trained language models, and the texts that they generate.
#include <optional>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/bindings/c/session.h"
#include "shale/models/language/text_model.h"

namespace shale::c {
namespace {

models::Precision precision_of(const char* name) {
  using enum models::Precision;
  models::Precision precision = kAuto;
  ConfigSpec spec("shale", "");
  spec.add_choice("dtype", precision, models::precision_choices({kAuto, kF32, kBF16, kF16}), "");
  if (name != nullptr) spec.read_json(Json{{"dtype", name}}.dump(), "options");
  return precision;
}

models::GenerateOptions sampling_of(const shale_generate_options& given) {
  if (given.max_tokens < 1) {
    fail_argument("options->max_tokens is ", given.max_tokens, ", expected 1 or more");
  }
  if (given.top_k < 0) fail_argument("options->top_k is ", given.top_k, ", expected 0 or more");
  if (!(given.top_p > 0 && given.top_p <= 1)) {
    fail_argument("options->top_p is ", given.top_p, ", expected above 0 and at most 1");
  }
  checked_number(given.temperature, "options->temperature", 0);
  return {.tokens = given.max_tokens,
          .temperature = given.temperature,
          .top_k = given.top_k,
          .top_p = given.top_p,
          .seed = given.seed};
}

std::vector<int32_t> encode(models::TextGenerator& generator, const char* prompt, bool is_chat) {
  if (!is_chat) return generator.encode(std::string(prompt));
  const Json messages = Json::parse(prompt, {}, "prompt");
  return generator.encode(read_chat_messages(Json{{"messages", messages}}, "messages"));
}

std::shared_ptr<models::TextModel> text_model_of(shale_text_model model) {
  session();
  return std::static_pointer_cast<models::TextModel>(find_handle(Kind::kTextModel, model, "model"));
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;

shale_status shale_text_model_load(shale_runtime runtime, const char* path,
                                   const shale_text_model_options* options, shale_text_model* out) {
  return call("shale_text_model_load", [&] {
    check_runtime(runtime);
    wanted(out, "out");
    const shale_text_model_options defaults = SHALE_TEXT_MODEL_OPTIONS_INIT;
    const auto given = options_of(options, defaults, "options");
    const std::string tokenizer =
        given.tokenizer == nullptr ? "" : checked_path(given.tokenizer, "options->tokenizer");
    auto model = std::make_shared<shale::models::TextModel>(shale::models::load_text_model(
        checked_path(path, "path"), tokenizer, session().context, precision_of(given.dtype)));
    *out = static_cast<shale_text_model>(add_handle(Kind::kTextModel, std::move(model)));
  });
}

shale_status shale_text_model_destroy(shale_text_model model) {
  return call("shale_text_model_destroy", [&] {
    session();
    take_handle(Kind::kTextModel, model, "model");
  });
}

shale_status shale_text_generate(shale_text_model model, const char* prompt,
                                 const shale_generate_options* options, shale_text_part part,
                                 void* user) {
  return call("shale_text_generate", [&] {
    const auto loaded = text_model_of(model);
    wanted(prompt, "prompt");
    if (part == nullptr) fail_argument("part is NULL");
    const shale_generate_options defaults = SHALE_GENERATE_OPTIONS_INIT;
    const auto given = options_of(options, defaults, "options");
    const shale::models::GenerateOptions sampling = sampling_of(given);
    const bool is_chat = given.chat != 0;
    shale::models::TextGenerator generator(
        *loaded, is_chat ? std::optional(shale::ChatTemplate::kAuto) : std::nullopt,
        given.stop == nullptr ? "" : given.stop);
    const auto tokens = generator.fitting<shale::DataError>(
        encode(generator, prompt, is_chat), is_chat ? "the conversation" : "the prompt");
    generator.generate(tokens, sampling, [&](const std::string& text) {
      return text.empty() || part(user, text.data(), text.size()) == 0;
    });
  });
}
