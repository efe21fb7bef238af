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

float uniform_at(uint64_t seed, int64_t position) {
  const auto p = static_cast<uint64_t>(position);
  return uniform_f32(philox({static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), 0, 0},
                            rng_key(seed, RngDomain::kSampling))[0]);
}

int32_t pick(std::span<const float> logits, const GenerateOptions& options, int64_t position) {
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
  const double mark = uniform_at(options.seed, position) * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), mark);
  return order[std::min(static_cast<size_t>(chosen - cumulative.begin()), order.size() - 1)];
}

}  // namespace

std::vector<int32_t> generate(LanguageModel& model, Context& context,
                              const std::vector<int32_t>& prompt, const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token) {
  if (prompt.empty()) throw ShapeError("generate: the prompt is empty, want at least one token");
  const auto longest = static_cast<size_t>(model.config().context);
  std::vector<int32_t> all = prompt;
  // What the model is to read next: everything at first, then one token at a time.
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
    const int32_t token =
        pick(std::span(row).first(size_t(model.config().vocab)), options, int64_t(all.size()));
    all.push_back(token);
    unread = {token};
    if (on_token != nullptr) on_token(token);
  }
  return {all.begin() + std::ptrdiff_t(prompt.size()), all.end()};
}

}  // namespace shale::models
