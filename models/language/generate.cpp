#include "shale/models/language/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/runtime/ops/elementwise.h"

namespace shale::models {
namespace {

// Index of a text, and position of a token in it. They determine a random number.
struct Place {
  int64_t position = 0;
  int64_t text = 0;
};

float uniform_at(uint64_t seed, Place at) {
  const auto p = static_cast<uint64_t>(at.position), n = static_cast<uint64_t>(at.text);
  return uniform_f32(philox({static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32),
                             static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32)},
                            rng_key(seed, RngDomain::kSampling))[0]);
}

int32_t pick(std::span<const float> logits, const GenerateOptions& options, Place at) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const auto keep = static_cast<std::ptrdiff_t>(
      options.temperature == 0 ? 1
      : options.top_k == 0     ? order.size()
                               : std::min<size_t>(order.size(), size_t(options.top_k)));
  std::partial_sort(order.begin(), order.begin() + keep, order.end(), likelier);
  order.resize(static_cast<size_t>(keep));
  if (keep == 1) return order.front();

  const float top = logits[static_cast<size_t>(order.front())];
  std::vector<double> cumulative;
  double total = 0;
  for (const int32_t token : order) {
    total += std::exp((logits[static_cast<size_t>(token)] - top) / options.temperature);
    cumulative.push_back(total);
  }
  if (options.top_p < 1) {
    // Keeps the fewest most likely tokens whose total probability reaches top_p: at least one.
    const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), options.top_p * total);
    if (last != cumulative.end()) cumulative.erase(last + 1, cumulative.end());
    total = cumulative.back();
  }
  const double mark = uniform_at(options.seed, at) * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), mark);
  return order[std::min(static_cast<size_t>(chosen - cumulative.begin()), cumulative.size() - 1)];
}

// Batch of prompts, padded at the front so that all end at the same position.
struct PromptBatch {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions, first_keys;  // as in Documents
  int64_t rows = 0, length = 0;
  bool is_even = true;  // true: all prompts have the same length

  explicit PromptBatch(const std::vector<std::vector<int32_t>>& prompts)
      : rows(std::ssize(prompts)) {
    for (const auto& prompt : prompts) length = std::max(length, std::ssize(prompt));
    for (const auto& prompt : prompts) {
      const int64_t unused = length - std::ssize(prompt);
      is_even = is_even && unused == 0;
      ids.insert(ids.end(), static_cast<size_t>(unused), 0);
      ids.insert(ids.end(), prompt.begin(), prompt.end());
      for (int64_t t = 0; t < length; ++t) {
        positions.push_back(static_cast<int32_t>(std::max<int64_t>(t - unused, 0)));
        first_keys.push_back(static_cast<int32_t>(unused));
      }
    }
  }
  Documents documents(Context& context) const {
    if (is_even) return {};
    return {.positions = from_host<int32_t>(context, positions, {rows, length}),
            .first_keys = from_host<int32_t>(context, first_keys, {rows, length})};
  }
  // Appends the next token of each text to the batch, with its position and first key.
  void advance(const std::vector<int32_t>& tokens) {
    std::vector<int32_t> places, firsts;
    for (int64_t row = 0; row < rows; ++row) {
      const auto last = static_cast<size_t>((row + 1) * length - 1);
      places.push_back(positions[last] + 1);
      firsts.push_back(first_keys[last]);
    }
    ids = tokens;
    positions = std::move(places);
    first_keys = std::move(firsts);
    length = 1;
  }
};

}  // namespace

std::vector<int32_t> generate(LanguageModel& model, Context& context,
                              const std::vector<int32_t>& prompt, const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token) {
  if (prompt.empty())
    throw ShapeError("generate: the prompt is empty, expected at least one token");
  const auto longest = static_cast<size_t>(model.config().context);
  std::vector<int32_t> all = prompt;
  // Tokens that the model reads next: at first the whole prompt, then one at a time.
  std::vector<int32_t> unread(all.end() - std::ptrdiff_t(std::min(all.size(), longest)), all.end());
  const auto needed = static_cast<int64_t>(unread.size()) + options.tokens;
  KvCache cache{.capacity = std::min(needed, model.config().context)};
  for (int64_t i = 0; i < options.tokens; ++i) {
    if (cache.length + int64_t(unread.size()) > int64_t(longest)) {
      cache.length = 0;
      unread.assign(all.end() - std::ptrdiff_t(std::max<size_t>(1, longest / 2)), all.end());
    }
    const Tensor ids = from_host<int32_t>(context, unread, {1, int64_t(unread.size())});
    const Tensor logits = cast(model.next_logits(ids, cache), DType::kF32);
    const std::vector<float> row = to_host<float>(logits);
    const int32_t token = pick(std::span(row).first(size_t(model.config().vocab)), options,
                               {.position = std::ssize(all)});
    all.push_back(token);
    unread = {token};
    if (on_token != nullptr) on_token(token);
  }
  return {all.begin() + std::ptrdiff_t(prompt.size()), all.end()};
}

std::vector<std::vector<int32_t>> generate_all(
    LanguageModel& model, Context& context, const std::vector<std::vector<int32_t>>& prompts,
    const GenerateOptions& options, int64_t first,
    const std::function<bool(size_t prompt, int32_t token)>& keeps_on) {
  for (const auto& prompt : prompts) {
    if (!prompt.empty() && std::ssize(prompt) < model.config().context) continue;
    throw ShapeError(cat("generate: the prompt has ", prompt.size(), " tokens, expected 1 to ",
                         model.config().context - 1, " with a context length of ",
                         model.config().context));
  }
  PromptBatch batch(prompts);
  if (model.config().pattern.is_on() && !batch.is_even) {
    // Runs prompts one by one, because padding would move tokens to other blocks of the attention
    // pattern than in training.
    std::vector<std::vector<int32_t>> texts;
    for (size_t row = 0; row < prompts.size(); ++row) {
      const auto of_row = [&](size_t, int32_t token) { return keeps_on(row, token); };
      texts.push_back(
          generate_all(model, context, {prompts[row]}, options, first + static_cast<int64_t>(row),
                       keeps_on ? std::function<bool(size_t, int32_t)>(of_row) : keeps_on)
              .front());
    }
    return texts;
  }
  const int64_t rows = batch.rows, longest = batch.length;
  const int64_t most = std::min(options.tokens, model.config().context - longest);
  std::vector<std::vector<int32_t>> texts(prompts.size());
  std::vector<bool> is_done(prompts.size());
  KvCache cache{.capacity = longest + most};
  for (int64_t i = 0; i < most; ++i) {
    const Tensor ids = from_host<int32_t>(context, batch.ids, {rows, batch.length});
    const Tensor logits =
        cast(model.next_logits(ids, cache, batch.documents(context)), DType::kF32);
    const std::vector<float> all = to_host<float>(logits);
    std::vector<int32_t> next(prompts.size());
    bool goes_on = false;
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (is_done[row]) continue;
      const auto of_row = std::span(all).subspan(row * size_t(logits.size(1)));
      const Place at{.position = std::ssize(prompts[row]) + i,
                     .text = first + static_cast<int64_t>(row)};
      next[row] = pick(of_row.first(size_t(model.config().vocab)), options, at);
      texts[row].push_back(next[row]);
      is_done[row] = keeps_on != nullptr && !keeps_on(row, next[row]);
      goes_on = goes_on || !is_done[row];
    }
    if (!goes_on) break;
    batch.advance(next);
  }
  return texts;
}

}  // namespace shale::models
