#include "shale/models/language/task.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/kernels/loss.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/models/language/expert_tally.h"
#include "shale/models/language/find_tokenizer.h"
#include "shale/models/language/generate.h"
#include "shale/models/language/open_data.h"
#include "shale/models/language/sequence_batches.h"
#include "shale/models/language/stored_model.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {

LanguageTask::LanguageTask(const TrainConfig& config, const LanguageTask* opened,
                           const DataReading& reading)
    : config_(config.language),
      batches_(batch_layout(config.run, /*ranks=*/1)),
      seed_(static_cast<uint64_t>(config.run.seed)),
      init_(opened != nullptr      ? opened->init_
            : config_.init.empty() ? nullptr
                                   : open_model(config_.init)),
      tokenizer_(opened != nullptr ? opened->tokenizer_ : find_tokenizer(config, reading.once)),
      extras_(opened != nullptr ? opened->extras_ : find_extras(config, tokenizer_)),
      data_(opened != nullptr ? opened->data_
                              : open_data(config, init_.get(), tokenizer_, reading)) {
  const LanguageModelConfig model =
      model_config(config_, data_vocab(data_.is_text, tokenizer_.get()), init_.get());
  if (data_.vocab_bound > model.vocab) {
    throw DataError(cat("--data ", config_.source.data, " has token ids up to ",
                        data_.vocab_bound - 1, ", the model's vocabulary is ", model.vocab,
                        "; use data made with the model's tokenizer, or a larger --vocab"));
  }
  model_ = make_language_model(model, config_.policy());
  if (config_.lora.is_on()) {
    adapters_ = adapter_shape(config_.lora);
    nn::add_adapters(*model_, adapters_->options, adapters_->targets);
  }
  for (const Parameter* parameter : model_->parameters()) {
    parameters_ += parameter->numel();
    if (parameter->trainable) trained_ += parameter->numel();
  }
  flops_per_token_ = model_->flops_per_token(config_.seq_len);
  // Quantizes after counting FLOPs, because quantized weights have other shapes.
  if (config_.lora.frozen != nn::FrozenDType::kCompute) {
    nn::keep_frozen(*model_, config_.lora.frozen);
  }
  // Throws now if the prompt is invalid.
  if (config_.sample_tokens > 0) static_cast<void>(prompt());
}

LanguageTask::~LanguageTask() = default;

std::unique_ptr<Module> LanguageTask::make_model() const {
  auto model = make_language_model(model_->config(), config_.policy());
  if (adapters_) nn::add_adapters(*model, adapters_->options, adapters_->targets);
  if (config_.lora.frozen != nn::FrozenDType::kCompute) {
    nn::keep_frozen(*model, config_.lora.frozen);
  }
  return model;
}

void LanguageTask::initialize(const TaskContext& run) {
  if (init_ == nullptr) return;
  std::optional<StoredAdapters> stored;
  if (!config_.lora.init.empty()) {
    stored.emplace(config_.lora.init, model_family(model_->config().family),
                   nn::adapted_layers(*model_));
  }
  load_stored_model(*init_, run.parallel, stored ? &*stored : nullptr, seed_);
}

comm::ModelPlan LanguageTask::plan() const {
  const LanguageModelConfig& config = model_->config();
  return {.tokens = config_.seq_len,
          .key_heads = config.kv_heads > 0 ? config.kv_heads : config.heads};
}

// Returns this rank's part of each sequence in context parallelism; otherwise `whole`.
BatchSource LanguageTask::of_rank(BatchSource whole) const {
  const bool cuts = parallel() != nullptr && parallel()->cuts_sequences();
  return cuts ? cut_batches(std::move(whole), parallel()->sequence_parts()) : whole;
}

BatchSource LanguageTask::train_batches(const BatchPlan& plan) {
  batches_ = plan.layout;
  return of_rank(shale::train_batches({.samples = data_.train,
                                       .seq_len = config_.seq_len,
                                       .layout = plan.layout,
                                       .rank = plan.rank,
                                       .first_step = plan.first_step,
                                       .with_documents = data_.with_documents}));
}

Tensor LanguageTask::loss(const DeviceBatch& batch) {
  return language_model().loss(own_rows(batch["inputs"]), own_rows(batch["targets"]),
                               documents(batch));
}

Tensor LanguageTask::run_pieces(const comm::PieceRange& some, const Tensor& x,
                                const DeviceBatch& batch) {
  const std::vector<nn::Piece> pieces = language_model().pieces();
  return language_model().run_pieces(pieces_in(pieces, some), x, own_rows(batch["inputs"]),
                                     own_rows(batch["targets"]), documents(batch));
}

Documents LanguageTask::documents(const DeviceBatch& batch) const {
  if (!data_.with_documents) return {};
  return {.positions = own_rows(batch["positions"]), .first_keys = own_rows(batch["first_keys"])};
}

Shape LanguageTask::boundary(int64_t samples) const {
  return {samples, parallel()->own_tokens() / parallel()->degrees().tensor, model_->config().width};
}

std::unique_ptr<StepTally> LanguageTask::tally(Context& context) {
  if (mixtures_of(*model_).empty()) return nullptr;
  return std::make_unique<ExpertTally>(models(), context,
                                       static_cast<float>(config_.router_bias_rate));
}

void LanguageTask::describe_tally(const std::vector<int32_t>& counts, StepMetrics& metrics) const {
  metrics.experts = expert_metrics(counts, model_->config().experts);
}

// Returns the number of a step's targets with a loss, on all ranks together. A mean of the ranks'
// means would give more weight to targets on ranks with few targets.
double LanguageTask::step_weight(int64_t step) const {
  const int64_t samples = batches_.batch_at(step);
  if (data_.has_all_targets) return static_cast<double>(samples * config_.seq_len);
  int64_t targets = 0;
  for (int64_t i = 0; i < samples; ++i) targets += data_.train->targets(batches_.begin(step) + i);
  return static_cast<double>(targets);
}

void LanguageTask::check_evaluation() const {
  if (data_.eval == nullptr) throw DataError(data_.no_eval);
  static_cast<void>(eval_rounds());
}

EvalRounds LanguageTask::eval_rounds() const {
  return {data_.eval->size(), batches_.micro_batch, config_.eval_samples};
}

Evaluation LanguageTask::evaluate(const TaskContext& run) {
  const Inference inference(run.context);
  const EvalRounds sampler = eval_rounds();
  Prefetcher batches(of_rank(eval_batches({.rows = data_.eval,
                                           .seq_len = config_.seq_len,
                                           .sampler = sampler,
                                           .rank = run.data.rank,
                                           .ranks = run.data.count,
                                           .with_documents = data_.with_documents})));
  // The host reads the losses only at the end, so that it prepares batches while the device
  // computes.
  const Tensor losses =
      zeros(run.context, {sampler.rounds(run.data.count)}, DType::kF32, MemoryTag::kData);
  int64_t rounds = 0, tokens = 0;
  while (const Batch* batch = batches.next()) {
    const Tensor sum = run.loss(DeviceBatch(run.context, *batch));
    const Tensor to = losses.alias({1}, {1}, rounds++);
    if (sum.defined()) run.context.copy(to.data(), sum.data(), sum.bytes());
    const auto targets = batch->field("targets").values<int32_t>();
    tokens += std::count_if(targets.begin(), targets.end(),
                            [](int32_t target) { return target != kernels::kIgnoreTarget; });
  }
  return evaluation_of(run, losses, tokens);
}

Evaluation LanguageTask::evaluation_of(const TaskContext& run, const Tensor& losses,
                                       int64_t items) const {
  const std::vector<float> sums = to_host<float>(losses);
  const double total =
      comm::ordered_sum(run.group, std::vector<double>(sums.begin(), sums.end()), run.data.losses);
  if (!run.data.counts) items = 0;  // another rank counts the same tokens
  run.group.host().all_reduce_sum(make_view(&items, {1}), {.tag = "evaluated items"});
  return {.loss = total / static_cast<double>(items), .items = items};
}

void LanguageTask::open_output() {
  if (config_.export_dir.empty()) return;
  const LanguageModelConfig& model = model_->config();
  // Throws if the family has no export.
  static_cast<void>(model_family(model.family).stored_parameters(model));
  make_folder(config_.export_dir);
}

void LanguageTask::finish(const TaskContext& run) {
  if (!config_.export_dir.empty()) {
    const bool is_main = run.group.rank() == 0;
    if (adapters_) {
      export_adapters(config_.export_dir, *model_, *adapters_, config_.init, run.parallel, is_main);
      // PEFT takes these files from the base model, but users of the adapters look for them here.
      const auto files = exported_files(extras_, tokenizer_.get(), /*config=*/{});
      for (const auto& [name, text] : files) {
        if (is_main) write_file_atomically(cat(config_.export_dir, "/", name), text);
      }
    } else {
      export_model(config_.export_dir, *model_, run.parallel, is_main,
                   {.max_shard_bytes = config_.export_shard_bytes,
                    .tokenizer = tokenizer_,
                    .extras = extras_});
    }
    log_info("wrote ", config_.export_dir);
  }
  if (config_.sample_tokens > 0) sample(run);
}

std::vector<int32_t> LanguageTask::prompt() const {
  if (tokenizer_ != nullptr) return encode_prompt(*tokenizer_, config_.sample_prompt);
  std::vector<int32_t> tokens;
  const int64_t vocab = model_->config().vocab;
  for (const char c : config_.sample_prompt) tokens.push_back(static_cast<uint8_t>(c));
  if (tokens.empty()) tokens.push_back(data_.is_text ? '\n' : static_cast<int32_t>(vocab - 1));
  for (const int32_t token : tokens) {
    if (token < vocab) continue;
    throw ConfigError(
        cat("--sample-prompt has the byte ", token, ", the model's vocabulary is ", vocab));
  }
  return tokens;
}

// Returns tokens as text, or as numbers if there is no tokenizer.
std::string LanguageTask::text_of(const std::vector<int32_t>& tokens) const {
  std::string text;
  if (tokenizer_ != nullptr) {
    StreamDecoder decoder(tokenizer_->tokenizer);
    for (const int32_t token : tokens) {
      // The model may have padding rows without a token.
      const bool is_known = tokenizer_->tokenizer.has(token);
      text += is_known ? decoder.push(token) : cat(decoder.finish(), "<", token, ">");
    }
    return text + decoder.finish();
  }
  for (const int32_t token : tokens) {
    if (data_.is_text) {
      text += token < 256 ? static_cast<char>(token) : '?';
    } else {
      text += cat(text.empty() ? "" : " ", token);
    }
  }
  return text;
}

void LanguageTask::sample(const TaskContext& run) {
  const std::vector<int32_t> begin = prompt();
  std::vector<int32_t> tokens =
      generate(*model_, run.context, begin, {.tokens = config_.sample_tokens, .seed = seed_});
  std::string text = config_.sample_prompt;
  if (tokenizer_ != nullptr && !text.empty()) {
    // Decodes old and new tokens together, because the first new token may complete a character.
    tokens.insert(tokens.begin(), begin.begin(), begin.end());
    text.clear();
  } else if (tokenizer_ == nullptr && !data_.is_text && !text.empty()) {
    text += ' ';
  }
  text += text_of(tokens);
  log_info("sample:\n", text);
  run.tell("samples/end", text);
}

std::string LanguageTask::command_to_try(const std::string& out) const {
  const bool answers = config_.source.objective != Objective::kPretrain;
  return cat("shale generate ", out, answers ? " --chat" : "");
}

SampleUnit LanguageTask::unit() const {
  // A frozen weight has no gradient, so a layer needs two GEMMs instead of three.
  const double flops = flops_per_token_ * (adapters_ ? 2.0 / 3 : 1);
  return {.samples = cat("sequences of ", config_.seq_len, " tokens"),
          .items = "tokens",
          .item = "tok",
          .items_per_sample = config_.seq_len,
          .flops_per_item = flops};
}

std::vector<std::string> LanguageTask::summary() const {
  const LanguageModelConfig& model = model_->config();
  std::vector<std::string> lines = data_.summary;
  lines.push_back(cat("model ", config_.init.empty() ? config_.model : config_.init, ": ",
                      model.layers, " layers, width ", model.width, ", ", model.heads,
                      " heads, vocabulary ", model.vocab, ", ", parameters_, " parameters"));
  if (tokenizer_ == nullptr && !data_.is_text && config_.init.empty() && config_.vocab == 0) {
    lines.push_back(
        "no tokenizer is stored with the tokens, so GPT-2's vocabulary is assumed; "
        "if that is wrong, use --tokenizer or --vocab");
  }
  if (adapters_) {
    lines.push_back(cat("adapters of rank ", adapters_->options.rank, " in ",
                        nn::adapted_layers(*model_).size(), " layers: ", trained_,
                        " parameters are trained"));
  }
  return lines;
}

std::map<std::string, std::string> LanguageTask::same_on_all_ranks() const {
  std::map<std::string, std::string> same = {
      {cat("data: ", config_.source.data),
       cat(data_.size, " (fingerprint ", data_.fingerprint, ")")}};
  if (tokenizer_ != nullptr) same[cat("tokenizer: ", tokenizer_->path)] = cat(tokenizer_->crc);
  return same;
}

std::map<std::string, std::string> LanguageTask::facts() const {
  std::map<std::string, std::string> facts = {
      {"model shape", model_shape_json(model_->config())},
      {"training data", cat("\"", data_.size, " (fingerprint ", data_.fingerprint, ")\"")}};
  if (adapters_) facts["lora adapters"] = adapter_shape_json(*adapters_);
  if (config_.lora.frozen != nn::FrozenDType::kCompute) {
    facts[kFrozenFact] = cat("\"", nn::frozen_dtype_name(config_.lora.frozen), "\"");
  }
  if (tokenizer_ != nullptr) {
    facts[kTokenizerFact] = cat("\"", tokenizer_fact(*tokenizer_), "\"");
  }
  return facts;
}

std::map<std::string, std::string> LanguageTask::data_checksums() const {
  std::map<std::string, std::string> checksums{{"training data", cat(data_.checksum)}};
  if (data_.shares) checksums["mixture of training data"] = cat(*data_.shares);
  return checksums;
}

std::map<std::string, std::string> LanguageTask::attachments() const {
  std::map<std::string, std::string> files = extras_;
  if (tokenizer_ != nullptr) files.merge(tokenizer_files(*tokenizer_));
  return files;
}

}  // namespace shale::models
