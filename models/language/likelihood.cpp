#include "shale/models/language/likelihood.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale::models {
namespace {

// Rows of different lengths. Padding at the end of a row has no loss.
struct LossRows {
  std::vector<std::vector<int32_t>> tokens = {};  // tokens of each row, at least two
  // For each row, index of the first token whose loss counts.
  std::vector<size_t> first_targets = {};
};

// Returns the sum of the counted losses of each row, in f64.
std::vector<double> row_losses(LanguageModel& model, Context& context, const LossRows& rows) {
  const Inference inference(context);
  size_t longest = 0;
  for (const auto& row : rows.tokens) longest = std::max(longest, row.size() - 1);
  std::vector<int32_t> inputs(rows.tokens.size() * longest);
  std::vector<int32_t> targets(inputs.size(), kernels::kIgnoreTarget);
  for (size_t r = 0; r < rows.tokens.size(); ++r) {
    const std::vector<int32_t>& row = rows.tokens[r];
    std::copy(row.begin(), row.end() - 1, inputs.begin() + std::ptrdiff_t(r * longest));
    for (size_t t = rows.first_targets[r]; t < row.size(); ++t) {
      targets[r * longest + t - 1] = row[t];
    }
  }
  const Shape shape = {std::ssize(rows.tokens), static_cast<int64_t>(longest)};
  const std::vector<float> losses = to_host<float>(model.token_losses(
      from_host<int32_t>(context, inputs, shape), from_host<int32_t>(context, targets, shape)));
  std::vector<double> sums;
  for (size_t r = 0; r < rows.tokens.size(); ++r) {
    double sum = 0;
    for (size_t t = 0; t < longest; ++t) sum += double(losses[r * longest + t]);
    sums.push_back(sum);
  }
  return sums;
}

// Appends a row with a question's context and one answer, joined by a space, as
// lm-evaluation-harness does. Both are tokenized together. The joining space, and spaces at the end
// of the context, count as part of the answer.
void add_answer(TokenEncoder& encoder, const StoredTokenizer& tokenizer, std::string context,
                const std::string& answer, int64_t longest, LossRows& rows) {
  const size_t end = jinja::strip(context, jinja::Side::kRight).size();
  const std::string behind = context.substr(end) + " " + answer;
  context.resize(end);
  std::vector<int32_t> before = encoder.encode(context);
  std::vector<int32_t> all = encoder.encode(context + behind);
  tokenizer.tokenizer.begin_text(before);
  tokenizer.tokenizer.begin_text(all);
  if (before.empty()) {
    before.push_back(tokenizer.end_of_document.value_or(0));
    all.insert(all.begin(), before.front());
  }
  if (all.size() <= before.size()) {
    throw DataError(
        cat("the answer '", answer,
            "' adds no tokens: the text with the answer has the same tokens as the text alone"));
  }
  size_t first = before.size();
  const auto most = static_cast<size_t>(longest) + 1;
  if (all.size() > most) {
    const size_t cut = all.size() - most;
    all.erase(all.begin(), all.begin() + std::ptrdiff_t(cut));
    first = first > cut ? first - cut : 1;
  }
  rows.tokens.push_back(std::move(all));
  rows.first_targets.push_back(std::max<size_t>(first, 1));
}

int64_t argmax(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

}  // namespace

ChoiceScores score_choices(LanguageModel& model, Context& context, const StoredTokenizer& tokenizer,
                           const std::vector<ChoiceItem>& items, comm::ProcessGroup& group) {
  TokenEncoder encoder(tokenizer.tokenizer);
  std::vector<int64_t> right(3);
  for (int64_t i = group.rank(); i < std::ssize(items); i += group.size()) {
    const ChoiceItem& item = items[static_cast<size_t>(i)];
    LossRows rows;
    for (const std::string& answer : item.answers) {
      add_answer(encoder, tokenizer, item.context, answer, model.config().context, rows);
    }
    const std::vector<double> losses = row_losses(model, context, rows);
    std::vector<double> sums, by_character, by_token;
    for (size_t a = 0; a < losses.size(); ++a) {
      const auto tokens = static_cast<double>(rows.tokens[a].size() - rows.first_targets[a]);
      sums.push_back(-losses[a]);
      by_character.push_back(-losses[a] / static_cast<double>(jinja::length(item.answers[a])));
      by_token.push_back(-losses[a] / tokens);
    }
    right[0] += argmax(sums) == item.right ? 1 : 0;
    right[1] += argmax(by_character) == item.right ? 1 : 0;
    right[2] += argmax(by_token) == item.right ? 1 : 0;
  }
  group.host().all_reduce_sum(make_view(right.data(), {3}), {.tag = "right answers"});
  return {.items = std::ssize(items),
          .right = right[0],
          .right_by_character = right[1],
          .right_by_token = right[2]};
}

double TextScore::perplexity() const {
  return std::exp(loss / static_cast<double>(tokens));
}

double TextScore::bits_per_byte() const {
  return loss / std::log(2.0) / static_cast<double>(bytes);
}

TextScore score_text(LanguageModel& model, Context& context, const std::vector<int32_t>& tokens,
                     const TextWindows& windows, comm::ProcessGroup& group) {
  const int64_t targets = std::ssize(tokens) - 1;
  if (targets < 1)
    throw DataError(cat("the text has ", tokens.size(), " tokens, expected at least two"));
  const int64_t count = (targets + windows.length - 1) / windows.length;
  // One rank computes a window, and the other ranks contribute 0, so sums do not depend on the
  // number of ranks.
  std::vector<double> losses(static_cast<size_t>(count));
  const int64_t step = windows.batch * group.size();
  for (int64_t first = group.rank() * windows.batch; first < count; first += step) {
    LossRows rows;
    const int64_t end = std::min(first + windows.batch, count);
    for (int64_t w = first; w < end; ++w) {
      const auto begin = tokens.begin() + w * windows.length;
      const auto last = tokens.begin() + std::min(targets, (w + 1) * windows.length);
      rows.tokens.emplace_back(begin, last + 1);
      rows.first_targets.push_back(1);
    }
    const std::vector<double> sums = row_losses(model, context, rows);
    std::copy(sums.begin(), sums.end(), losses.begin() + first);
  }
  group.host().all_reduce_sum(make_view(losses.data(), {count}), {.tag = "losses of windows"});
  double total = 0;
  for (const double loss : losses) total += loss;
  return {.tokens = targets, .loss = total};
}

}  // namespace shale::models
