#include "shale/models/language/open_data.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/runtime/data/tokens/data_mix.h"
#include "shale/runtime/data/tokens/packing.h"

namespace shale::models {
namespace {

// Stream of zero tokens, of any length.
class ZeroTokens final : public TokenStream {
 public:
  explicit ZeroTokens(int64_t tokens) : tokens_(tokens) {}
  int64_t size() const override { return tokens_; }
  int64_t vocab_bound() const override { return 1; }
  void read(int64_t, std::span<int32_t> out) const override {
    std::fill(out.begin(), out.end(), 0);
  }

 private:
  int64_t tokens_;
};

std::shared_ptr<const ExampleStore> zero_pairs(int64_t pairs) {
  auto store = std::make_shared<ExampleStore>();
  for (int64_t i = 0; i < 2 * pairs; ++i) store->add({.tokens = {0, 0}, .is_answer = {0, 1}});
  return store;
}

// Returns the placeholder data of a plan, which reads no data. --eval-samples 0 means the default
// number.
TrainingData planned_data(const LanguageConfig& config) {
  constexpr int64_t kTrainSamples = int64_t{1} << 30;
  const int64_t eval =
      config.eval_samples > 0 ? config.eval_samples : LanguageConfig().eval_samples;
  const DataConfig& source = config.source;
  const bool is_pretraining = source.objective == Objective::kPretrain;
  const int64_t length = config.seq_len;
  const auto train = std::make_shared<ZeroTokens>(kTrainSamples * length);
  const bool is_packed = source.packing == PackingChoice::kBestFit || source.document_mask;
  return {.train = window_samples(train, TrainSampler(train->size(), length, /*seed=*/0)),
          .eval = window_rows(std::make_shared<ZeroTokens>((eval + 1) * length), length),
          .with_documents = is_pretraining ? is_packed : source.packing != PackingChoice::kNone,
          .is_text = source.format.kind == DataFormat::kAuto || is_text(source.format.kind),
          .vocab_bound = 1,
          .size = "no tokens",
          .summary = {"no data: a plan needs none"},
          .preferences = {.train = zero_pairs(1), .val = zero_pairs(eval)}};
}

// Returns the number of threads that tokenize: all cores of the node, because its other ranks wait.
int tokenizing_threads() {
  return cpu_counts().bound;
}

DataOptions data_options(const TrainConfig& config,
                         std::shared_ptr<const StoredTokenizer> tokenizer,
                         const DataReading& reading) {
  const DataConfig& source = config.language.source;
  const std::string own = (std::filesystem::path(config.run.out) / "data-cache").string();
  return {.path = source.data,
          .format = source.format.kind,
          .val_fraction = source.val_fraction,
          .vocab_size = config.language.vocab,
          .validate = false,  // tokens are checked later, when they are used
          .on_reading = reading.on_reading,
          .once = reading.once,
          .tokenizer = std::move(tokenizer),
          .threads = tokenizing_threads(),
          .width = source.format.width,
          .field = source.field,
          .cache = source.cache.empty() ? own : source.cache};
}

// Determines the formats of all parts. Returns true if their tokens are bytes.
bool find_formats(std::vector<DataPart>& parts, const DataOptions& options) {
  int64_t texts = 0;
  for (DataPart& part : parts) {
    DataOptions own = options;
    own.path = part.path;
    if (part.format != DataFormat::kAuto) own.format = part.format;
    if (part.width) own.width = part.width;
    part.format = find_format(own);
    if (is_text(part.format)) ++texts;
  }
  const bool are_texts = texts == std::ssize(parts);
  if (texts > 0 && !are_texts && options.tokenizer == nullptr) {
    throw ConfigError(
        cat("--data: ", texts, " of ", parts.size(),
            " sources are text, the other sources are token files; use --tokenizer to tokenize the "
            "text"));
  }
  return are_texts;
}

// Throws ConfigError for an option that applies only to a corpus, if no part is a corpus.
void check_formats(const DataConfig& source, const std::vector<DataPart>& parts) {
  const DataConfig initial;
  const auto is_corpus = [](const DataPart& part) { return part.format == DataFormat::kCorpus; };
  if (std::ranges::any_of(parts, is_corpus)) return;
  const auto refuse = [&](const char* flag, const char* files) {
    throw ConfigError(cat(flag, " has no effect without ", files, ", and --data is ",
                          to_string(parts.front().format), "; leave out ", flag));
  };
  if (source.field != initial.field) refuse("--data-field", "jsonl");
  if (source.cache != initial.cache) refuse("--data-cache", "a corpus");
}

// Returns the seed of a source. Each source has its own order; the first one has the run's seed.
uint64_t source_seed(uint64_t seed, size_t source) {
  return source == 0 ? seed : seed + source * 0x9e3779b97f4a7c15u;
}

// Makes rows of one source.
class RowMaker {
 public:
  RowMaker(const TrainConfig& config, const StoredTokenizer* tokenizer, bool is_bytes)
      : seq_len_(config.language.seq_len),
        seed_(static_cast<uint64_t>(config.run.seed)),
        best_fit_(config.language.source.packing == PackingChoice::kBestFit),
        with_documents_(best_fit_ || config.language.source.document_mask) {
    const int64_t asked = config.language.source.document_token;
    if (asked >= 0) token_ = static_cast<int32_t>(asked);
    if (asked < 0 && tokenizer != nullptr) token_ = tokenizer->end_of_document;
    if (asked < 0 && tokenizer == nullptr && is_bytes) token_ = 0;  // byte 0 separates files
    if (with_documents_ && !token_) {
      throw ConfigError(cat(best_fit_ ? "--packing best-fit" : "--document-mask",
                            ": the token between documents is unknown; use --document-token"));
    }
  }

  bool with_documents() const { return with_documents_; }
  bool has_all_targets() const { return !best_fit_; }

  std::shared_ptr<const TrainSamples> train(const DatasetSplits& data, size_t source) const {
    const uint64_t seed = source_seed(seed_, source);
    if (best_fit_) return packed_samples(packed(data.train, between(data)), seed);
    const TrainSampler sampler(data.train->size(), seq_len_, seed);
    return window_samples(data.train, sampler, between(data));
  }
  std::shared_ptr<const EvalRows> eval(const DatasetSplits& data) const {
    if (best_fit_) return packed(data.val, between(data));
    return window_rows(data.val, seq_len_, between(data));
  }

 private:
  std::optional<DocumentToken> between(const DatasetSplits& data) const {
    if (!with_documents_) return {};
    return DocumentToken::of(*data.train, *token_);
  }
  std::shared_ptr<const PackedRows> packed(const std::shared_ptr<const TokenStream>& tokens,
                                           const std::optional<DocumentToken>& between) const {
    const auto documents = stream_documents(tokens, *between);
    Packing packing = pack(*documents, seq_len_, PackingRule::kBestFit, Overlong::kSplit);
    return std::make_shared<const PackedRows>(documents, std::move(packing));
  }

  int64_t seq_len_;
  uint64_t seed_;
  bool best_fit_, with_documents_;
  std::optional<int32_t> token_;  // token that separates documents
};

// Returns lines such as "web: 70% of samples, 1.25 epochs".
std::vector<std::string> describe_mixture(const MixedData& data, const Mixture& mixture,
                                          const std::vector<int64_t>& per_epoch,
                                          const TrainConfig& config) {
  constexpr size_t kMostLines = 20;
  const auto samples =
      static_cast<double>(batch_layout(config.run, /*ranks=*/1).samples_before(config.run.steps));
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(data.parts.size(), kMostLines); ++i) {
    const double share = mixture.share(static_cast<int64_t>(i));
    lines.push_back(cat("data ", data.parts[i].path, ": ", format_number(100 * share),
                        "% of the sequences, ",
                        format_number(share * samples / static_cast<double>(per_epoch[i])),
                        " epochs; ", data.sources[i].summary));
  }
  if (data.parts.size() > kMostLines) {
    lines.push_back(cat("data: and ", data.parts.size() - kMostLines, " other sources"));
  }
  return lines;
}

// Opens the validation data of all sources that have enough tokens for a row.
void open_evaluation(const MixedData& data, const Mixture& mixture, const RowMaker& rows,
                     const LanguageConfig& config, TrainingData& to) {
  std::vector<std::shared_ptr<const EvalRows>> sources;
  std::vector<double> shares;
  to.no_eval = cat("--data ", config.source.data,
                   " has no data for validation, which --eval-every needs; raise --val-fraction");
  for (size_t i = 0; i < data.sources.size(); ++i) {
    if (data.sources[i].val == nullptr) continue;
    try {
      sources.push_back(rows.eval(data.sources[i]));
      shares.push_back(mixture.share(static_cast<int64_t>(i)));
    } catch (const DataError& error) {
      to.no_eval = cat("validation: ", error.what());
    }
  }
  if (sources.empty()) return;
  const int64_t most = sources.size() > 1 ? config.eval_samples : 0;
  to.eval = mixed_rows(std::move(sources), shares, most);
}

TrainingData open_tokens(const TrainConfig& config, const StoredModel* stored,
                         const std::shared_ptr<const StoredTokenizer>& tokenizer,
                         const DataReading& reading) {
  DataOptions options = data_options(config, tokenizer, reading);
  std::vector<DataPart> parts = parse_data(config.language.source.data);
  const bool is_bytes = find_formats(parts, options);
  check_formats(config.language.source, parts);
  const int64_t vocab =
      model_config(config.language, data_vocab(is_bytes, tokenizer.get()), stored).vocab;
  if (is_bytes && tokenizer == nullptr && stored != nullptr && vocab > data_vocab(true, nullptr) &&
      config.language.source.tokenizer != "none") {
    throw ConfigError(cat("--init ", config.language.init, ": no tokenizer found for its ", vocab,
                          " tokens; use --tokenizer FILE, or --tokenizer none to train on bytes"));
  }
  if (tokenizer != nullptr && tokenizer->tokenizer.vocab_size() > vocab) {
    throw DataError(cat(tokenizer->path, ": ", tokenizer->tokenizer.vocab_size(),
                        " tokens, the model's vocabulary is ", vocab,
                        "; use the tokenizer of the model"));
  }
  // Tokens that are bytes need no check: they have 256 values with any model, and LanguageTask
  // compares 256 with the vocabulary.
  if (!is_bytes && options.vocab_size == 0) options.vocab_size = vocab;
  const MixedData data = open_parts(std::move(parts), options);
  const RowMaker rows(config, tokenizer.get(), is_bytes);
  std::vector<std::shared_ptr<const TrainSamples>> sources;
  std::vector<int64_t> per_epoch;
  for (size_t i = 0; i < data.sources.size(); ++i) {
    try {
      sources.push_back(rows.train(data.sources[i], i));
    } catch (const DataError& error) {
      if (data.sources.size() == 1) throw;
      throw DataError(cat(data.parts[i].path, ": ", error.what()));
    }
    per_epoch.push_back(sources.back()->samples_per_epoch());
  }
  const Mixture mixture = data.mixture(per_epoch);
  TrainingData all{.train = mixed_samples(std::move(sources), mixture),
                   .eval = {},
                   .with_documents = rows.with_documents(),
                   .has_all_targets = rows.has_all_targets(),
                   .is_text = data.is_text(),
                   .vocab_bound = data.vocab_bound(),
                   .size = cat(data.train_tokens(), " tokens as ", data.format()),
                   .fingerprint = data.fingerprint,
                   .checksum = data.checksum};
  if (data.sources.size() == 1) {
    all.summary = {data.sources.front().summary};
  } else {
    all.summary = describe_mixture(data, mixture, per_epoch, config);
    all.shares = mixture.fingerprint();
  }
  open_evaluation(data, mixture, rows, config.language, all);
  return all;
}

std::shared_ptr<const PackedRows> packed_examples(const std::shared_ptr<const ExampleStore>& store,
                                                  const LanguageConfig& config) {
  const PackingRule rule =
      config.source.packing == PackingChoice::kNone ? PackingRule::kNone : PackingRule::kBestFit;
  return std::make_shared<const PackedRows>(
      store, pack(*store, config.seq_len, rule, Overlong::kTruncate));
}

int64_t count_overlong(const ExampleStore& store, int64_t seq_len) {
  int64_t count = 0;
  for (int64_t i = 0; i < store.size(); ++i) count += store.length(i) > seq_len ? 1 : 0;
  return count;
}

// Counts examples whose answer does not fit into --seq-len. With `group` 2, counts pairs of
// examples of which at least one does not fit.
int64_t count_unanswered(const ExampleSplits& examples, int64_t seq_len, int64_t group) {
  int64_t count = 0;
  for (const auto& store : {examples.train, examples.val}) {
    for (int64_t first = 0; store != nullptr && first < store->size(); first += group) {
      bool has_all = true;
      for (int64_t i = first; i < first + group; ++i) {
        has_all = has_all && store->targets(i, 0, std::min(store->length(i), seq_len)) > 0;
      }
      count += has_all ? 0 : 1;
    }
  }
  return count;
}

// Reads the configured examples. stored: model of --init, or null. Throws ConfigError without a
// tokenizer; DataError if the tokenizer has more tokens than the model.
ExampleSplits read_all_examples(const TrainConfig& config, const StoredModel* stored,
                                const std::shared_ptr<const StoredTokenizer>& tokenizer,
                                const DataReading& reading) {
  const DataConfig& source = config.language.source;
  if (tokenizer == nullptr) {
    throw ConfigError("--task sft and dpo need a tokenizer; use --tokenizer");
  }
  const int64_t tokens = tokenizer->tokenizer.vocab_size();
  const int64_t vocab = model_config(config.language, tokens, stored).vocab;
  if (tokens > vocab) {
    throw DataError(cat(tokenizer->path, ": ", tokens, " tokens, the model's vocabulary is ", vocab,
                        "; use the tokenizer of the model"));
  }
  ExampleOptions options{.paths = {},
                         .kind = source.objective == Objective::kDpo ? ExampleKind::kPreferences
                                                                     : ExampleKind::kAnswers,
                         .tokenizer = tokenizer,
                         .style = source.chat_template,
                         .val_fraction = source.val_fraction,
                         .threads = tokenizing_threads(),
                         .on_reading = reading.on_reading,
                         .once = reading.once};
  for (const DataPart& part : parse_data(source.data)) {
    if (part.weight > 0) {
      throw ConfigError(
          cat("--data: ", part.path,
              " has a weight, which --task sft and dpo do not support; leave it out"));
    }
    options.paths.push_back(part.path);
  }
  return read_examples(options);
}

TrainingData open_examples(const TrainConfig& config, const StoredModel* stored,
                           const std::shared_ptr<const StoredTokenizer>& tokenizer,
                           const DataReading& reading) {
  const LanguageConfig& language = config.language;
  ExampleSplits examples = read_all_examples(config, stored, tokenizer, reading);
  const bool is_dpo = language.source.objective == Objective::kDpo;
  TrainingData all{.train = {},
                   .eval = {},
                   .no_eval = cat("--data ", language.source.data, " has no data for validation"),
                   .has_all_targets = false,
                   .vocab_bound = tokenizer->tokenizer.vocab_size(),
                   .size = cat(examples.examples, is_dpo ? " preferences" : " examples"),
                   .fingerprint = examples.fingerprint,
                   .checksum = examples.checksum};
  const int64_t held_out = (examples.val == nullptr ? 0 : examples.val->size()) / (is_dpo ? 2 : 1);
  std::string line = cat(all.size, " in ", language.source.data, ", ", held_out,
                         " of them for validation", examples.note);
  if (const int64_t cut = count_overlong(*examples.train, language.seq_len); cut > 0) {
    line += cat("; ", cut, " of them are longer than --seq-len ", language.seq_len,
                " and are cut to this length");
  }
  const int64_t lost = count_unanswered(examples, language.seq_len, is_dpo ? 2 : 1);
  if (lost > 0) {
    line += cat("; ", lost, " of ", all.size,
                is_dpo ? " lose a whole answer by the cut" : " lose all answers by the cut",
                " and are left out");
  }
  if (is_dpo) {
    all.preferences = std::move(examples);
  } else {
    const auto rows = packed_examples(examples.train, language);
    all.train = packed_samples(rows, static_cast<uint64_t>(config.run.seed));
    all.with_documents = language.source.packing != PackingChoice::kNone;
    if (examples.val != nullptr) all.eval = packed_examples(examples.val, language);
    line += cat("; ", rows->size(), " sequences of ", language.seq_len, " tokens an epoch");
  }
  all.summary = {std::move(line)};
  return all;
}

}  // namespace

int64_t data_vocab(bool is_text, const StoredTokenizer* tokenizer) {
  constexpr int64_t kBytes = 256;
  if (tokenizer != nullptr) return tokenizer->tokenizer.vocab_size();
  return is_text ? kBytes : kGpt2Vocab;
}

TrainingData open_data(const TrainConfig& config, const StoredModel* stored,
                       std::shared_ptr<const StoredTokenizer> tokenizer,
                       const DataReading& reading) {
  if (config.language.source.data.empty()) return planned_data(config.language);
  const bool is_pretraining = config.language.source.objective == Objective::kPretrain;
  return is_pretraining ? open_tokens(config, stored, tokenizer, reading)
                        : open_examples(config, stored, tokenizer, reading);
}

}  // namespace shale::models
