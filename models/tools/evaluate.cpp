// shale evaluate: perplexity of a model on a text, or its accuracy on questions.
#include <cstdio>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/text_file.h"
#include "shale/models/image/classifier.h"
#include "shale/models/language/likelihood.h"
#include "shale/models/tools/model_options.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"

namespace shale::models {
namespace {

enum class Evaluated { kPerplexity, kHellaSwag, kArc, kMmlu };

struct Request {
  ModelOptions model;
  Evaluated task = Evaluated::kPerplexity;
  std::string data;
  int64_t seq_len = 0;  // tokens per window; 0: the model's context, at most kLongestWindow
  int64_t batch = 8, limit = 0;
  bool json = false;
};

constexpr int64_t kLongestWindow = 2048;
constexpr int64_t kMaxTextBytes = int64_t{1} << 31;

void describe(ConfigSpec& spec, Request& r) {
  describe(spec, r.model);
  spec.add_choice("task", r.task,
                  {{"perplexity", Evaluated::kPerplexity},
                   {"hellaswag", Evaluated::kHellaSwag},
                   {"arc", Evaluated::kArc},
                   {"mmlu", Evaluated::kMmlu}},
                  "what to measure: perplexity of a text, or a benchmark in its own jsonl format");
  spec.add("data", r.data,
           "text for perplexity, jsonl with questions, or images as in --data of train_image",
           {.required = true, .is_path = true, .help = {.metavar = "FILE"}});
  spec.add("seq-len", r.seq_len, "tokens per window of text",
           {.min = 1, .max = 1 << 20, .help = {.default_text = "the context, at most 2048"}});
  spec.add("batch", r.batch, "windows or images per forward pass", {.min = 1, .max = 1 << 16});
  spec.add("limit", r.limit, "number of questions or images to use, from the first on; 0: all",
           {.min = 0});
  spec.add("json", r.json, "print one JSON object");
  spec.example("shale evaluate my_model --data test.txt");
  spec.example("shale evaluate vit --data pets/");
  spec.example("mpirun -np 4 shale evaluate out --task hellaswag --data hellaswag_val.jsonl");
}

Json perplexity(const Request& request, TextModel& loaded, comm::ProcessGroup& group) {
  const std::string text = read_text_file(request.data, kMaxTextBytes);
  const int64_t context = loaded.model->config().context;
  const int64_t length = request.seq_len > 0 ? request.seq_len : std::min(context, kLongestWindow);
  if (length > context) {
    throw ConfigError(cat("--seq-len is ", length,
                          ", expected at most the context length of the model, ", context));
  }
  std::vector<int32_t> tokens = TokenEncoder(loaded.tokenizer->tokenizer).encode(text);
  loaded.tokenizer->tokenizer.begin_text(tokens);
  TextScore score = score_text(*loaded.model, *loaded.context, tokens,
                               {.length = length, .batch = request.batch}, group);
  score.bytes = std::ssize(text);
  return {{"task", "perplexity"},
          {"tokens", score.tokens},
          {"bytes", score.bytes},
          {"loss", score.loss / static_cast<double>(score.tokens)},
          {"perplexity", score.perplexity()},
          {"bits_per_byte", score.bits_per_byte()}};
}

Json choices(const Request& request, TextModel& loaded, comm::ProcessGroup& group) {
  const auto [format, name] =
      request.task == Evaluated::kHellaSwag ? std::pair(ChoiceFormat::kHellaSwag, "hellaswag")
      : request.task == Evaluated::kArc     ? std::pair(ChoiceFormat::kArc, "arc")
                                            : std::pair(ChoiceFormat::kMmlu, "mmlu");
  std::vector<ChoiceItem> items = read_choices(request.data, format);
  if (request.limit > 0 && request.limit < std::ssize(items)) {
    items.resize(static_cast<size_t>(request.limit));
  }
  const ChoiceScores scores =
      score_choices(*loaded.model, *loaded.context, *loaded.tokenizer, items, group);
  const auto part = [&](int64_t right) {
    return static_cast<double>(right) / static_cast<double>(scores.items);
  };
  return {{"task", name},
          {"items", scores.items},
          {"acc", part(scores.right)},
          {"acc_norm", part(scores.right_by_character)},
          {"acc_token", part(scores.right_by_token)}};
}

void print(const Request& request, const std::string& description, const Json& result) {
  if (request.json) {
    std::printf("%s\n", result.dump().c_str());
    return;
  }
  std::printf("%s: %s\n", request.model.path.c_str(), description.c_str());
  for (const auto& [key, value] : result.items()) {
    const std::string text = value.is_string()     ? value.text()
                             : !value.is_integer() ? format_number(value.real())
                                                   : value.dump();
    std::printf("%-14s %s\n", key.c_str(), text.c_str());
  }
}

// Evaluates the validation images of a data set; all images if it has none for validation.
int evaluate_images(const Request& request, comm::World& world) {
  if (request.task != Evaluated::kPerplexity || request.seq_len > 0) {
    throw ConfigError(cat("--task and --seq-len are for language models, ", request.model.path,
                          " is an image classifier; leave them out"));
  }
  auto context = make_context(request.model, world);
  const DType dtype = dtype_of_flag(request.model.dtype, context->device());
  ImageClassifier classifier(request.model.path, std::move(context), dtype);
  const ImageSplits data = open_images(
      {.path = request.data, .val_fraction = 0, .made_pixels = classifier.augmentation().pixels});
  const auto group = world.group({.name = "evaluation"});
  const auto [hits, loss] = classifier.evaluate(data.val != nullptr ? data.val : data.train,
                                                data.classes, request.batch, request.limit, *group);
  if (world.rank() != 0) return 0;
  const auto images = static_cast<double>(hits.counts[0]);
  Json result{{"task", "images"}, {"images", hits.counts[0]}, {"loss", loss / images}};
  for (size_t k = 0; k < Hits::kTop.size(); ++k) {
    if (Hits::kTop[k] >= std::ssize(classifier.classes())) continue;
    result[cat("top", Hits::kTop[k])] = static_cast<double>(hits.counts[k + 1]) / images;
  }
  print(request, classifier.description(), result);
  return 0;
}

int evaluate(const Request& request, comm::World& world) {
  if (is_image_classifier(request.model.path)) return evaluate_images(request, world);
  TextModel loaded = load(request.model, world);
  const auto group = world.group({.name = "evaluation"});
  const Json result = request.task == Evaluated::kPerplexity ? perplexity(request, loaded, *group)
                                                             : choices(request, loaded, *group);
  if (world.rank() == 0) print(request, loaded.description, result);
  return 0;
}

}  // namespace

int run_evaluate(int argc, const char* const* argv) {
  Request request;
  ConfigSpec spec("shale evaluate",
                  "measures the perplexity of a text, or the accuracy on a benchmark or images");
  describe(spec, request);
  if (parse_or_print(spec, argc, argv)) return 0;
  return comm::run(0, nullptr, [&](comm::World& world) { return evaluate(request, world); });
}

}  // namespace shale::models
