#include "shale/kernels/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shale/test/support/all_limits.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::RouterRule;
using kernels::RouterScore;
using test::DeviceArray;
using Vec = std::vector<double>;

struct Size {
  int64_t tokens, experts, active;
};
const std::vector<Size> kSizes = {{0, 4, 2},    {1, 1, 1},   {3, 8, 2},
                                  {70, 16, 16}, {40, 24, 6}, {17, 300, 8}};

const std::vector<RouterRule> kRules = {
    {},
    {.renormalise = true},
    {.score = RouterScore::kSigmoid, .scale = 2.5f},
    {.score = RouterScore::kSigmoid, .renormalise = true, .scale = 2.5f}};

// ---- Formulas for one token ----

double log_sum_exp(const Vec& logits) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  return std::log(sum);
}

Vec scores_of(const Vec& logits, RouterScore score) {
  Vec scores;
  const double log_sum = log_sum_exp(logits);
  for (const double x : logits) {
    scores.push_back(score == RouterScore::kSoftmax ? std::exp(x - log_sum)
                                                    : 1 / (1 + std::exp(-x)));
  }
  return scores;
}

Vec weights_of(const Vec& logits, const std::vector<int32_t>& experts, const RouterRule& rule) {
  const Vec scores = scores_of(logits, rule.score);
  Vec weights;
  for (const int32_t e : experts) weights.push_back(scores[size_t(e)]);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights) w *= double(rule.scale) / (rule.renormalise ? sum : 1);
  return weights;
}

// Returns the expected choice, by a full sort: decreasing score, then ascending expert number.
std::vector<int32_t> best_of(const Vec& choice, int64_t count) {
  std::vector<int32_t> order(choice.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return choice[size_t(a)] > choice[size_t(b)]; });
  order.resize(size_t(count));
  return order;
}

template <typename T>
Vec row_of(const std::vector<T>& values, int64_t row, int64_t size) {
  const auto wide = test::to_f64(values);
  return {wide.begin() + row * size, wide.begin() + (row + 1) * size};
}

struct Routed {
  std::vector<float> weights;
  std::vector<int32_t> experts;
};

Routed route(const Exec& exec, Size n, const RouterRule& rule, const std::vector<float>& logits,
             const std::vector<float>& bias = {}) {
  const DeviceArray<float> x(exec, logits), b(exec, bias), weights(exec, n.tokens * n.active);
  const DeviceArray<int32_t> experts(exec, n.tokens * n.active);
  kernels::moe_route_fwd(exec, {.logits = x.view({n.tokens, n.experts}),
                                .bias = bias.empty() ? View{} : b.view({n.experts}),
                                .weights = weights.view({n.tokens, n.active}),
                                .experts = experts.view({n.tokens, n.active}),
                                .rule = rule});
  CHECK(weights.margins_intact());
  CHECK(experts.margins_intact());
  return {weights.download(), experts.download()};
}

struct Sorted {
  std::vector<int32_t> counts, offsets, rows, sources;
};

Sorted sort(const Exec& exec, Size n, const std::vector<int32_t>& experts, int64_t capacity,
            int64_t align) {
  const int64_t rows = kernels::moe_rows(n.tokens, n.active, n.experts, align);
  const DeviceArray<int32_t> chosen(exec, experts), counts(exec, n.experts),
      offsets(exec, n.experts + 1), places(exec, n.tokens * n.active), sources(exec, rows);
  kernels::moe_sort(exec, {.experts = chosen.view({n.tokens, n.active}),
                           .capacity = capacity,
                           .align = align,
                           .counts = counts.view(),
                           .offsets = offsets.view(),
                           .rows = places.view({n.tokens, n.active}),
                           .sources = sources.view()});
  CHECK((counts.margins_intact() && offsets.margins_intact() && places.margins_intact() &&
         sources.margins_intact()));
  return {counts.download(), offsets.download(), places.download(), sources.download()};
}

std::vector<Exec> devices() {
  return test::devices_with({&kernels::moe_route_fwd, &kernels::moe_route_bwd, &kernels::moe_sort,
                             &kernels::moe_permute, &kernels::moe_combine, &kernels::moe_dots});
}

}  // namespace

TEST_CASE("routers choose and weigh by their formulas", "[kernels][moe]") {
  for (const Exec& exec : devices()) {
    for (const Size& n : kSizes) {
      for (const RouterRule& rule : kRules) {
        CAPTURE(to_string(exec.device), n.tokens, n.experts, n.active);
        const auto logits = test::randn<float>(n.tokens * n.experts, 5, 0, 2);
        const Routed got = route(exec, n, rule, logits);
        for (int64_t t = 0; t < n.tokens; ++t) {
          const Vec row = row_of(logits, t, n.experts);
          const auto first = got.experts.begin() + t * n.active;
          const std::vector<int32_t> experts(first, first + n.active);
          CHECK(experts == best_of(row, n.active));
          // The errors are a few roundings of an exponential, of a sum of up to 300 terms and of a
          // quotient.
          CHECK(test::max_error(row_of(got.weights, t, n.active), weights_of(row, experts, rule)) <=
                32 * test::ulp<float>() * rule.scale);
        }
      }
    }
  }
}

TEST_CASE("among equal scores routers choose the lower expert", "[kernels][moe]") {
  const Size n{2, 6, 3};
  for (const Exec& exec : devices()) {
    const Routed got = route(exec, n, {.renormalise = true}, {1, 2, 2, 1, 2, 2, 0, 0, 0, 0, 0, 0});
    CHECK(got.experts == std::vector<int32_t>{1, 2, 4, 0, 1, 2});
    CHECK(test::max_error(got.weights, Vec(6, 1.0 / 3)) <= test::ulp<float>());
  }
}

TEST_CASE("a bias moves the choice, not the weights, and groups limit it", "[kernels][moe]") {
  // Sigmoids increase with the logits. The groups are {0, 1}, {2, 3}, {4, 5}.
  const Size n{1, 6, 2};
  const std::vector<float> logits = {0, 1, 2, -9, 1.5f, 1.25f};
  const RouterRule rule{.score = RouterScore::kSigmoid, .renormalise = true, .scale = 2};
  for (const Exec& exec : devices()) {
    CHECK(route(exec, n, rule, logits).experts == std::vector<int32_t>{2, 4});
    const Routed biased = route(exec, n, rule, logits, {5, 0, 0, 0, 0, 0});
    CHECK(biased.experts == std::vector<int32_t>{0, 2});
    CHECK(test::max_error(biased.weights, weights_of(test::to_f64(logits), {0, 2}, rule)) <=
          8 * test::ulp<float>());
    RouterRule one_group = rule;
    one_group.groups = 3, one_group.active_groups = 1;
    // The best expert is in the second group, but the sum of the second group's two scores is below
    // that of the third group.
    CHECK(route(exec, n, one_group, logits).experts == std::vector<int32_t>{4, 5});
    // Among equal groups the first one is chosen.
    CHECK(route(exec, n, one_group, std::vector<float>(6, 0)).experts ==
          std::vector<int32_t>{0, 1});
  }
}

TEST_CASE("gradients of routers are those of their formulas", "[kernels][moe]") {
  const Size n{5, 8, 3};
  const float step_scale = 0.25f, balance = 0.5f, z = 0.125f;
  const auto logits = test::randn<float>(n.tokens * n.experts, 7);
  const auto d_weights = test::randn<float>(n.tokens * n.active, 8);
  for (const Exec& device : devices()) {
    for (const RouterRule& rule : kRules) {
      const bool balances = rule.score == RouterScore::kSoftmax;
      const test::DeviceStep step(device, {.grad_scale = step_scale});
      const Exec& exec = step.exec();
      const Routed routed = route(exec, n, rule, logits);
      const Sorted sorted = sort(exec, n, routed.experts, 0, 1);
      const DeviceArray<float> x(exec, logits), dw(exec, d_weights), dx(exec, x.size());
      // The kernel gets the counts of two batches: of these tokens, and of as many others.
      std::vector<int32_t> of_all = sorted.counts;
      for (int32_t e = 0; e < n.experts; ++e) of_all.push_back(e % 4);
      const DeviceArray<int32_t> experts(exec, routed.experts), counts(exec, of_all);
      kernels::moe_route_bwd(exec, {.logits = x.view({n.tokens, n.experts}),
                                    .experts = experts.view({n.tokens, n.active}),
                                    .counts = counts.view({2, n.experts}),
                                    .d_weights = dw.view({n.tokens, n.active}),
                                    .d_logits = dx.view({n.tokens, n.experts}),
                                    .rule = rule,
                                    .balance = balances ? balance : 0,
                                    .z = z,
                                    .tokens = 2 * n.tokens});
      // Returns the losses of one token; their derivatives do not depend on the other tokens,
      // because counts are given.
      const auto value = [&](const Vec& row, int64_t t) {
        const auto first = routed.experts.begin() + t * n.active;
        const Vec weights = weights_of(row, {first, first + n.active}, rule);
        double sum = 0;
        for (int64_t j = 0; j < n.active; ++j) {
          sum += weights[size_t(j)] * double(d_weights[size_t(t * n.active + j)]);
        }
        const Vec shares = scores_of(row, RouterScore::kSoftmax);
        for (int64_t e = 0; balances && e < n.experts; ++e) {
          const int32_t count = of_all[size_t(e)] + of_all[size_t(n.experts + e)];
          const double f = double(count) / double(n.active * 2 * n.tokens);
          sum += double(step_scale * balance) * double(n.experts) * f * shares[size_t(e)];
        }
        return sum + double(step_scale * z) * std::pow(log_sum_exp(row), 2);
      };
      Vec want;
      for (int64_t t = 0; t < n.tokens; ++t) {
        const Vec row = row_of(logits, t, n.experts);
        for (size_t e = 0; e < row.size(); ++e) {
          Vec up = row, down = row;
          up[e] += 1e-5, down[e] -= 1e-5;
          want.push_back((value(up, t) - value(down, t)) / 2e-5);
        }
      }
      CHECK(dx.margins_intact());
      CHECK(test::max_error(dx.download(), want) <= 3e-6);
    }
  }
}

TEST_CASE("rows are in order of expert and token, and capacity drops the last", "[kernels][moe]") {
  const Size n{5, 4, 2};
  const std::vector<int32_t> experts = {2, 0, 0, 2, 2, 3, 3, 2, 0, 2};
  for (const Exec& exec : devices()) {
    const Sorted all = sort(exec, n, experts, 0, 1);
    CHECK(all.counts == std::vector<int32_t>{3, 0, 5, 2});
    CHECK(all.offsets == std::vector<int32_t>{0, 3, 3, 8, 10});
    CHECK(all.sources == std::vector<int32_t>{1, 2, 8, 0, 3, 4, 7, 9, 5, 6});
    CHECK(all.rows == std::vector<int32_t>{3, 0, 1, 4, 5, 8, 9, 6, 2, 7});
    const Sorted few = sort(exec, n, experts, 2, 4);
    CHECK(few.counts == all.counts);
    CHECK(few.offsets == std::vector<int32_t>{0, 4, 4, 8, 12});
    CHECK(few.rows == std::vector<int32_t>{4, 0, 1, 5, -1, 8, 9, -1, -1, -1});
    std::vector<int32_t> sources(size_t(kernels::moe_rows(5, 2, 4, 4)), -1);
    for (size_t i = 0; i < few.rows.size(); ++i) {
      if (few.rows[i] >= 0) sources[size_t(few.rows[i])] = int32_t(i);
    }
    CHECK(few.sources == sources);
  }
}

TEST_CASE("sorting adds up what experts got and what was dropped", "[kernels][moe]") {
  const std::vector<int32_t> experts = {2, 0, 0, 2, 2, 3, 3, 2, 0, 2};
  for (const Exec& exec : devices()) {
    const DeviceArray<int32_t> chosen(exec, experts), counts(exec, 4), offsets(exec, 5),
        rows(exec, 10), sources(exec, 10), loads(exec, {7, 0, 0, 0, 1});
    const auto add = [&](int64_t capacity) {
      kernels::moe_sort(exec, {.experts = chosen.view({5, 2}),
                               .capacity = capacity,
                               .counts = counts.view(),
                               .offsets = offsets.view(),
                               .rows = rows.view({5, 2}),
                               .sources = sources.view(),
                               .loads = loads.view()});
    };
    add(0);
    add(2);
    CHECK(loads.margins_intact());
    CHECK(loads.download() == std::vector<int32_t>{7 + 6, 0, 10, 4, 1 + 1 + 3});
  }
}

TEST_CASE("biases of routers move by the sign of their experts' loads", "[kernels][moe]") {
  // The two layers have mean loads of 3 and 7 / 3. Dropped tokens, the last number of each layer,
  // do not count.
  const std::vector<int32_t> loads = {3, 4, 2, 99, 2, 3, 2, 0};
  const std::vector<float> bias = {0, 1, 2, 3, 4, 5};
  for (const Exec& exec : test::devices_with({&kernels::moe_balance})) {
    const DeviceArray<int32_t> x(exec, loads);
    const DeviceArray<float> b(exec, bias);
    kernels::moe_balance(exec, {.loads = x.view({2, 4}), .bias = b.view({2, 3}), .rate = 0.25f});
    CHECK(b.margins_intact());
    CHECK(b.download() == std::vector<float>{0, 0.75f, 2.25f, 3.25f, 3.75f, 5.25f});
  }
}

TEMPLATE_TEST_CASE("tokens go to their rows and come back weighted, exactly", "[kernels][moe]",
                   float, bf16, f16) {
  for (const Exec& exec : devices()) {
    for (const Size& n : kSizes) {
      for (const int64_t C : {1, 37, 64}) {
        CAPTURE(to_string(exec.device), n.tokens, n.experts, n.active, C);
        const auto experts =
            route(exec, n, {}, test::randn<float>(n.tokens * n.experts, 9)).experts;
        const Sorted sorted = sort(exec, n, experts, n.tokens / 2, 4);
        const int64_t rows = std::ssize(sorted.sources), choices = n.tokens * n.active;
        const auto x = test::rand_int<TestType>(n.tokens * C, 1, -2, 2);
        const auto residual = test::rand_int<TestType>(n.tokens * C, 2, -2, 2);
        const auto weights = test::rand_int<float>(choices, 3, -2, 2);
        const DeviceArray<TestType> dx(exec, x), dr(exec, residual), dy(exec, rows * C),
            back(exec, n.tokens * C);
        const DeviceArray<int32_t> sources(exec, sorted.sources), places(exec, sorted.rows);
        const DeviceArray<float> dw(exec, weights), dots(exec, choices);
        kernels::moe_permute(exec, {.x = dx.view({n.tokens, C}),
                                    .sources = sources.view(),
                                    .weights = dw.view({n.tokens, n.active}),
                                    .y = dy.view({rows, C}),
                                    .active = n.active});
        kernels::moe_combine(exec, {.x = dy.view({rows, C}),
                                    .rows = places.view({n.tokens, n.active}),
                                    .weights = dw.view({n.tokens, n.active}),
                                    .residual = dr.view({n.tokens, C}),
                                    .y = back.view({n.tokens, C})});
        kernels::moe_dots(exec, {.x = dx.view({n.tokens, C}),
                                 .y = dy.view({rows, C}),
                                 .rows = places.view({n.tokens, n.active}),
                                 .dots = dots.view({n.tokens, n.active})});
        Vec want_rows(static_cast<size_t>(rows * C)), want = test::to_f64(residual);
        Vec want_dots(static_cast<size_t>(choices));
        for (int64_t i = 0; i < choices; ++i) {
          if (sorted.rows[size_t(i)] < 0) continue;
          const double w = weights[size_t(i)];
          for (int64_t c = 0; c < C; ++c) {
            const auto token = size_t(i / n.active * C + c);
            const double value = w * test::to_f64(x[token]);
            want_rows[size_t(sorted.rows[size_t(i)] * C + c)] = value;
            want[token] += w * value;
            want_dots[size_t(i)] += test::to_f64(x[token]) * value;
          }
        }
        CHECK((dy.margins_intact() && back.margins_intact() && dots.margins_intact()));
        CHECK(test::max_error(dy.download(), want_rows) == 0);
        CHECK(test::max_error(back.download(), want) == 0);
        CHECK(test::max_error(dots.download(), want_dots) == 0);
      }
    }
  }
}

TEST_CASE("more experts than a block has shared memory for are refused", "[kernels][moe]") {
  constexpr int64_t kExperts = 1366;
  for (const Exec& exec : test::devices_of_all_limits({&kernels::moe_route_fwd})) {
    if (exec.device.arch != 75) continue;
    CHECK(test::message_of<ShapeError>([&] {
            route(exec, {1, kExperts, 2}, {}, std::vector<float>(kExperts));
          }) == "moe_route_fwd: there are 1366 experts, expected at most 1365 on emu:75");
  }
}

TEST_CASE("routers refuse more active experts than experts, and groups that do not divide",
          "[kernels][moe]") {
  const Exec& exec = test::devices().front();
  CHECK_THROWS_AS(route(exec, {1, 2, 3}, {}, {1, 2}), ShapeError);
  CHECK_THROWS_AS(route(exec, {1, 4, 2}, {.groups = 3}, {1, 2, 3, 4}), ShapeError);
  CHECK_THROWS_AS(route(exec, {1, 4, 3}, {.groups = 2, .active_groups = 1}, {1, 2, 3, 4}),
                  ShapeError);
}

}  // namespace shale
