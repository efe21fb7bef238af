#include "shale/models/language/preference_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/text_file.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"

// In this file: P pairs, T tokens per row.
namespace shale::models {
namespace {

constexpr const char* kReferenceFile = "dpo_reference.f32";
constexpr int64_t kMaxReferenceBytes = int64_t{1} << 32;

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Returns s_chosen - s_rejected, [pairs], given the result of answer_losses().
Tensor difference(const Tensor& losses) {
  const auto side = [&](int64_t i) {
    return reshape(contiguous(slice(losses, 1, i, i + 1)), {losses.size(0)});
  };
  return sub(side(1), side(0));
}

}  // namespace

struct PreferenceTask::Figures {
  std::array<double, 4> sums = {};  // accuracy, margin, chosen reward, rejected reward
};

PreferenceTask::PreferenceTask(const TrainConfig& config, const PreferenceTask* opened,
                               const DataReading& reading)
    : LanguageTask(config, opened, reading),
      beta_(config.language.source.dpo_beta),
      train_(opened != nullptr ? opened->train_ : usable(data().preferences.train)),
      val_(opened != nullptr ? opened->val_ : usable(data().preferences.val)) {
  if (train_.size() == 0) {
    throw DataError(cat("--data ", config.language.source.data,
                        ": no preference pair has both answers within --seq-len ",
                        config.language.seq_len, "; use a larger --seq-len or other data"));
  }
  if (opened == nullptr) load_reference(config);
}

PreferenceTask::Pairs PreferenceTask::usable(
    const std::shared_ptr<const ExampleStore>& examples) const {
  Pairs pairs{.examples = examples};
  if (examples == nullptr) return pairs;
  const auto has_targets = [&](int64_t example) {
    const int64_t count = std::min(examples->length(example), config().seq_len);
    return examples->targets(example, 0, count) > 0;
  };
  for (int64_t pair = 0; pair < examples->size() / 2; ++pair) {
    if (has_targets(2 * pair) && has_targets(2 * pair + 1)) pairs.numbers.push_back(pair);
  }
  return pairs;
}

// ---- Batches: rows of answers, and reference and counts of each pair ----

void PreferenceTask::fill(const Pairs& pairs, int64_t index, const TokenBatch& tokens,
                          int64_t row) const {
  for (const int64_t side : {0, 1}) {
    const TokenRow to = tokens.row(2 * row + side);
    std::ranges::fill(to.inputs, 0);
    std::ranges::fill(to.targets, kernels::kIgnoreTarget);
    if (index >= pairs.size()) continue;
    const int64_t example = 2 * pairs.numbers[static_cast<size_t>(index)] + side;
    const auto count =
        static_cast<size_t>(std::min(pairs.examples->length(example), config().seq_len));
    pairs.examples->read(example, 0, to.inputs.first(count), to.targets.first(count));
  }
}

void PreferenceTask::make_batch(const Pairs& pairs, const std::vector<int64_t>& indices,
                                Batch& batch) const {
  const auto count = std::ssize(indices);
  const auto field = [&](const char* name) {
    return batch.set(name, DType::kF32, {count}).values<float>();
  };
  // Adds all fields before filling any, because adding a field may invalidate references to the
  // others.
  for (const char* name : {"reference", "counted"}) field(name);
  const TokenBatch tokens(batch, 2 * count, config().seq_len);
  const std::span<float> reference = field("reference"), counted = field("counted");
  for (int64_t row = 0; row < count; ++row) {
    const auto at = static_cast<size_t>(row), index = static_cast<size_t>(indices[at]);
    counted[at] = indices[at] < pairs.size() ? 1.0f : 0.0f;
    reference[at] = index < pairs.reference.size() ? pairs.reference[index] : 0.0f;
    fill(pairs, indices[at], tokens, row);
  }
}

BatchSource PreferenceTask::train_batches(const BatchPlan& given) {
  plan(given);
  given.layout.validate();
  return [this, given](int64_t i, Batch& batch) {
    const BatchLayout::Place place = given.layout.place_of(given.first_step, i);
    batch.first_position = given.layout.first_position(place.step, given.rank, place.micro);
    batch.count = given.layout.micro_batch;
    std::vector<int64_t> indices;
    for (int64_t b = 0; b < batch.count; ++b) {
      const int64_t position = batch.first_position + b;
      const auto epoch = static_cast<uint64_t>(position / train_.size());
      indices.push_back(Permutation(train_.size(), seed(), epoch)(position % train_.size()));
    }
    make_batch(train_, indices, batch);
    return true;
  };
}

double PreferenceTask::step_weight(int64_t step) const {
  return static_cast<double>(batches().batch_at(step));
}

// ---- The loss ----

Tensor PreferenceTask::answer_losses(const DeviceBatch& batch) {
  const Tensor& inputs = batch["inputs"];
  const int64_t pairs = inputs.size(0) / 2, length = inputs.size(1);
  const Tensor losses = language_model().token_losses(inputs, batch["targets"]);
  return sum(reshape(losses, {pairs, 2, length}), {2});
}

Tensor PreferenceTask::loss(const DeviceBatch& batch) {
  const Tensor answers = answer_losses(batch);
  const Tensor margin =
      mul(sub(difference(answers), batch["reference"]), static_cast<float>(beta_));
  if (keeps_) kept_losses_ = answers, kept_margin_ = margin;
  return sum(mul(softplus(neg(margin)), batch["counted"]));
}

void PreferenceTask::check_evaluation() const {
  if (val_.size() == 0) throw DataError(data().no_eval);
}

void PreferenceTask::add_figures(const Pairs& pairs, const std::vector<int64_t>& indices,
                                 Figures& to) const {
  const std::vector<float> margins = to_host<float>(kept_margin_);
  const std::vector<float> losses = to_host<float>(kept_losses_);
  for (size_t row = 0; row < indices.size(); ++row) {
    if (indices[row] >= pairs.size()) continue;
    const double margin = margins[row];
    to.sums[0] += margin > 0 ? 1 : 0;
    to.sums[1] += margin;
    if (pairs.chosen.empty()) continue;
    const double log_probability = -losses[2 * row];
    const double chosen =
        beta_ * (log_probability - pairs.chosen[static_cast<size_t>(indices[row])]);
    to.sums[2] += chosen;
    to.sums[3] += chosen - margin;
  }
}

Evaluation PreferenceTask::evaluate(const TaskContext& run) {
  const Inference inference(run.context);
  struct Keeps {
    explicit Keeps(PreferenceTask& task) : of(task) { of.keeps_ = true; }
    ~Keeps() { of.keeps_ = false, of.kept_losses_ = of.kept_margin_ = Tensor(); }
    PreferenceTask& of;
  };
  const Keeps keeps(*this);
  Figures figures;
  const EvalRounds sampler(val_.size(), batches().micro_batch, config().eval_samples);
  const int64_t rounds = sampler.rounds(run.data.count);
  const Tensor losses = zeros(run.context, {rounds}, DType::kF32, MemoryTag::kData);
  int64_t pairs = 0;
  Batch batch;
  for (int64_t round = 0; round < rounds; ++round) {
    const EvalRounds::Range range = sampler.range(round, run.data.rank, run.data.count);
    std::vector<int64_t> indices(static_cast<size_t>(sampler.batch()), val_.size());
    for (int64_t b = 0; b < range.count; ++b) indices[static_cast<size_t>(b)] = range.first + b;
    make_batch(val_, indices, batch);
    const Tensor sum = run.loss(DeviceBatch(run.context, batch));
    run.context.copy(losses.alias({1}, {1}, round).data(), sum.data(), sum.bytes());
    pairs += range.count;
    if (run.data.counts) add_figures(val_, indices, figures);
  }
  run.group.host().all_reduce_sum(make_view(figures.sums.data(), {std::ssize(figures.sums)}),
                                  {.tag = "figures of preferences"});
  Evaluation result = evaluation_of(run, losses, pairs);
  const auto count = static_cast<double>(result.items);
  result.more = {{"accuracy", figures.sums[0] / count}, {"margin", figures.sums[1] / count}};
  if (!val_.chosen.empty()) {
    result.more["chosen_reward"] = figures.sums[2] / count;
    result.more["rejected_reward"] = figures.sums[3] / count;
  }
  return result;
}

SampleUnit PreferenceTask::unit() const {
  const SampleUnit rows = LanguageTask::unit();
  return {.samples = cat("pairs of ", rows.samples),
          .items = "pairs",
          .item = "pairs",
          .items_per_sample = 1,
          .flops_per_item = 2 * static_cast<double>(rows.items_per_sample) * rows.flops_per_item};
}

// ---- Reference log-probabilities of the initial model ----

void PreferenceTask::initialize(const TaskContext& run) {
  LanguageTask::initialize(run);
  compute_reference(run, train_);
  compute_reference(run, val_);
}

void PreferenceTask::compute_reference(const TaskContext& run, Pairs& pairs) {
  const Inference inference(run.context);
  pairs.reference.assign(pairs.numbers.size(), 0.0f);
  pairs.chosen = pairs.reference;
  if (pairs.size() == 0) return;
  const EvalRounds sampler(pairs.size(), batches().micro_batch);
  Batch batch;
  const size_t all = pairs.numbers.size();
  // r_chosen - r_rejected of all pairs, then r_chosen of all pairs.
  std::vector<float> found(2 * all);
  for (int64_t round = 0; round < sampler.rounds(run.data.count); ++round) {
    const EvalRounds::Range range = sampler.range(round, run.data.rank, run.data.count);
    std::vector<int64_t> indices(static_cast<size_t>(sampler.batch()), pairs.size());
    for (int64_t b = 0; b < range.count; ++b) indices[static_cast<size_t>(b)] = range.first + b;
    make_batch(pairs, indices, batch);
    const Tensor losses = answer_losses(DeviceBatch(run.context, batch));
    const std::vector<float> values = to_host<float>(difference(losses));
    const std::vector<float> sums = to_host<float>(losses);
    for (size_t row = 0; row < static_cast<size_t>(range.count); ++row) {
      const size_t pair = static_cast<size_t>(range.first) + row;
      found[pair] = values[row];
      found[all + pair] = -sums[2 * row];
    }
  }
  // One rank computes a pair, and the other ranks contribute 0, so the sum has no rounding errors.
  run.group.host().all_reduce_sum(make_view(found.data(), {std::ssize(found)}),
                                  {.tag = "reference of preferences"});
  const auto middle = found.begin() + static_cast<std::ptrdiff_t>(all);
  pairs.reference.assign(found.begin(), middle);
  pairs.chosen.assign(middle, found.end());
}

std::map<std::string, std::string> PreferenceTask::attachments() const {
  std::map<std::string, std::string> files = LanguageTask::attachments();
  files[kReferenceFile] = bytes_of(train_.reference) + bytes_of(val_.reference) +
                          bytes_of(train_.chosen) + bytes_of(val_.chosen);
  return files;
}

void PreferenceTask::load_reference(const TrainConfig& config) {
  const std::string& resume = config.run.resume;
  if (resume == "none") return;
  const auto checkpoint = newest_checkpoint(resume == "auto" ? config.run.out : resume);
  if (!checkpoint) return;
  const std::string path = (std::filesystem::path(*checkpoint) / kReferenceFile).string();
  const std::string bytes = read_text_file(path, kMaxReferenceBytes);
  const size_t train = train_.numbers.size(), want = train + val_.numbers.size();
  // Earlier versions of Shale stored only r_chosen - r_rejected.
  const bool has_chosen = bytes.size() == 2 * want * sizeof(float);
  if (!has_chosen && bytes.size() != want * sizeof(float)) {
    throw DataError(cat(path, ": ", bytes.size(), " bytes, expected ", 2 * want * sizeof(float),
                        ", two numbers for each of ", want, " pairs"));
  }
  std::vector<float> all(bytes.size() / sizeof(float));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  auto next = all.begin();
  const auto take = [&](std::vector<float>& to, size_t count) {
    to.assign(next, next + static_cast<std::ptrdiff_t>(count));
    next += static_cast<std::ptrdiff_t>(count);
  };
  take(train_.reference, train);
  take(val_.reference, want - train);
  if (!has_chosen) return;
  take(train_.chosen, train);
  take(val_.chosen, want - train);
}

std::unique_ptr<LanguageTask> make_language_task(const TrainConfig& config,
                                                 const DataReading& reading) {
  if (config.language.source.objective == Objective::kDpo) {
    return std::make_unique<PreferenceTask>(config, nullptr, reading);
  }
  return std::make_unique<LanguageTask>(config, nullptr, reading);
}

}  // namespace shale::models
