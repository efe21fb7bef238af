#include "shale/runtime/data/sampler.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

using namespace shale;

namespace {

std::vector<int64_t> all_values(const Permutation& permutation) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < permutation.size(); ++i) values.push_back(permutation(i));
  return values;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> iota(int64_t n) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(i);
  return values;
}

}  // namespace

TEST_CASE("a permutation visits every element once, for every size", "[data]") {
  std::vector<int64_t> sizes = iota(300);
  sizes.erase(sizes.begin());
  for (const int64_t n : {511, 512, 513, 1000, 4095, 4096, 4097, 65536, 65537}) sizes.push_back(n);
  for (const int64_t n : sizes) {
    CAPTURE(n);
    for (const uint64_t epoch : {0ull, 1ull, ~0ull}) {
      REQUIRE(sorted(all_values(Permutation(n, /*seed=*/n * 7, epoch))) == iota(n));
    }
  }
}

TEST_CASE("a permutation of 2^40 elements stays inside and has no collision", "[data]") {
  const int64_t n = (int64_t{1} << 40) - 12345;
  const Permutation permutation(n, 3, 9);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 2000; ++i) {
    const int64_t value = permutation(n - 1 - i * (n / 2000));
    REQUIRE(value >= 0);
    REQUIRE(value < n);
    seen.insert(value);
  }
  CHECK(seen.size() == 2000);
}

TEST_CASE("a permutation of the largest size works", "[data]") {
  const int64_t n = INT64_MAX;
  const Permutation permutation(n, 1, 0);
  CHECK(permutation(0) != permutation(n - 1));
  CHECK(permutation(n - 1) >= 0);
}

TEST_CASE("every order of three elements comes up", "[data]") {
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t epoch = 0; epoch < 1200; ++epoch) ++counts[all_values(Permutation(3, 5, epoch))];
  REQUIRE(counts.size() == 6);
  // 200 of each order are expected, with a standard deviation of 13; the limit is five deviations.
  for (const auto& [order, count] : counts) CHECK((count > 135 && count < 265));
}

TEST_CASE("each element goes to each place equally often over epochs and seeds", "[data]") {
  const int64_t n = 10;
  const bool over_seeds = GENERATE(false, true);
  std::array<std::array<int, 10>, 10> counts{};
  const uint64_t draws = 5000;
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const Permutation permutation(n, over_seeds ? draw : 1, over_seeds ? 0 : draw);
    for (int64_t i = 0; i < n; ++i) {
      ++counts[static_cast<size_t>(i)][static_cast<size_t>(permutation(i))];
    }
  }
  // Chi-square of a 10 x 10 table with fixed margins: 81 degrees of freedom, so mean 81 and
  // standard deviation 12.7. The limit is six standard deviations above the mean.
  double chi_square = 0;
  for (const auto& row : counts) {
    for (const int count : row) chi_square += (count - 500.0) * (count - 500.0) / 500.0;
  }
  CHECK(chi_square < 81 + 6 * 12.7);
}

TEST_CASE("seeds and epochs give unrelated orders", "[data]") {
  const std::vector<int64_t> base = all_values(Permutation(1000, 1, 0));
  for (const auto& other :
       {all_values(Permutation(1000, 1, 1)), all_values(Permutation(1000, 2, 0)),
        all_values(Permutation(1000, 1, uint64_t{1} << 32)),
        all_values(Permutation(1000, (uint64_t{1} << 32) + 1, 0))}) {
    int same = 0;
    for (size_t i = 0; i < base.size(); ++i) same += base[i] == other[i];
    CHECK(same < 10);  // 1 equal position is expected; 10 or more have a probability of 1e-7
  }
  CHECK(all_values(Permutation(1000, 1, 0)) == base);
}

TEST_CASE("a permutation rejects what is outside", "[data]") {
  CHECK_THROWS_AS(Permutation(0, 1, 0), InternalError);
  CHECK_THROWS_AS(Permutation(5, 1, 0)(5), InternalError);
  CHECK_THROWS_AS(Permutation(5, 1, 0)(-1), InternalError);
}

TEST_CASE("an epoch has every window once, inside the stream and without overlap", "[data]") {
  const int64_t seq_len = GENERATE(1, 2, 7, 64);
  const int64_t tokens = seq_len * 20 + GENERATE(0, 1, 5);
  const TrainSampler sampler(tokens, seq_len, 11);
  const int64_t n = sampler.samples_per_epoch();
  REQUIRE(n >= tokens / seq_len - 1);
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    std::vector<int64_t> begins;
    for (int64_t i = 0; i < n; ++i) {
      const TokenWindow window = sampler.window(epoch * n + i);
      REQUIRE(window.epoch == epoch);
      REQUIRE(window.begin >= 0);
      REQUIRE(window.begin + seq_len + 1 <= tokens);
      begins.push_back(window.begin);
    }
    begins = sorted(begins);
    REQUIRE(begins.front() < seq_len);
    for (size_t i = 1; i < begins.size(); ++i) REQUIRE(begins[i] - begins[i - 1] == seq_len);
    offsets.insert(begins.front());
  }
  // The offset differs between tilings. In 30 draws of 7 offsets, at most four different ones have
  // p < 1e-7.
  if (seq_len >= 7) CHECK(offsets.size() > 4);
}

TEST_CASE("the smallest data gives one window, moved as far as it can be", "[data]") {
  const int64_t seq_len = 8;
  CHECK(TrainSampler(9, seq_len, 1).window(5).begin == 0);
  std::set<int64_t> begins;
  const TrainSampler sampler(12, seq_len, 1);  // the only window begins at offset 0, 1, 2 or 3
  CHECK(sampler.samples_per_epoch() == 1);
  for (int64_t i = 0; i < 100; ++i) begins.insert(sampler.window(i).begin);
  CHECK(begins == std::set<int64_t>{0, 1, 2, 3});
}

TEST_CASE("too little data says how much there is and how much is needed", "[data]") {
  CHECK_THROWS_AS(TrainSampler(8, 8, 1), DataError);
  const std::string message = test::message_of<DataError>([] { TrainSampler(8, 8, 1); });
  CHECK(test::contains(message, "8 tokens"));
  CHECK(test::contains(message, "at least 9"));
  CHECK_THROWS_AS(TrainSampler(0, 8, 1), DataError);
  CHECK_THROWS_AS(count_windows(8, 8), DataError);
  CHECK_THROWS_AS(TrainSampler(8, 0, 1), ConfigError);
}

TEST_CASE("ranks cover a step's positions exactly, each once", "[data]") {
  const int64_t ranks = GENERATE(1, 2, 3, 4, 8);
  const int64_t micro_batch = GENERATE(1, 2, 5);
  const int64_t micro_batches = GENERATE(1, 2, 4);
  const BatchLayout layout{.global_batch = ranks * micro_batch * micro_batches,
                           .micro_batch = micro_batch,
                           .ranks = ranks};
  layout.validate();
  REQUIRE(layout.micro_batches(0) == micro_batches);
  for (const int64_t step : {0, 1, 17}) {
    std::vector<int64_t> positions;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (int64_t j = 0; j < micro_batches; ++j) {
        for (int64_t b = 0; b < micro_batch; ++b) {
          positions.push_back(layout.first_position(step, rank, j) + b);
        }
      }
    }
    std::vector<int64_t> want;
    for (int64_t i = 0; i < layout.global_batch; ++i)
      want.push_back(step * layout.global_batch + i);
    REQUIRE(sorted(positions) == want);
  }
}

TEST_CASE("a micro-batch is the leaf j * ranks + rank, whatever the number of ranks", "[data]") {
  // With one rank, leaf l is micro-batch l; with W ranks leaf l is micro-batch l / W of rank l % W.
  const BatchLayout one{.global_batch = 48, .micro_batch = 2, .ranks = 1};
  for (const int64_t ranks : {2, 3, 4, 8}) {
    const BatchLayout many{.global_batch = 48, .micro_batch = 2, .ranks = ranks};
    for (int64_t leaf = 0; leaf < 24; ++leaf) {
      CHECK(many.first_position(5, leaf % ranks, leaf / ranks) == one.first_position(5, 0, leaf));
    }
  }
}

TEST_CASE("a run that is killed, and resumed with other ranks and batches, uses each sample once",
          "[data]") {
  struct Stretch {
    BatchLayout layout;
    // Number of steps done when the run is killed; the last ones are not saved.
    int64_t killed_after;
    int64_t saved_after;
  };
  // The batch size grows and shrinks, so that positions are counted from negative and positive
  // origins.
  const std::vector<Stretch> stretches = {
      {{.global_batch = 8, .micro_batch = 2, .ranks = 2}, 9, 7},
      {{.global_batch = 24, .micro_batch = 4, .ranks = 3}, 8, 8},
      {{.global_batch = 24, .micro_batch = 1, .ranks = 4}, 15, 11},
      {{.global_batch = 5, .micro_batch = 1, .ranks = 1}, 14, 14}};
  std::vector<int64_t> used;
  int64_t step = 0;
  for (auto [layout, killed_after, saved_after] : stretches) {
    layout.origin = int64_t(used.size()) - step * layout.global_batch;
    size_t saved = 0;  // number of positions that the checkpoint records
    for (; step < killed_after; ++step) {
      CHECK(layout.begin(step) == int64_t(used.size()));
      for (int64_t j = 0; j < layout.micro_batches(step); ++j) {
        for (int64_t rank = 0; rank < layout.ranks; ++rank) {
          for (int64_t b = 0; b < layout.micro_batch; ++b) {
            used.push_back(layout.first_position(step, rank, j) + b);
          }
        }
      }
      if (step + 1 == saved_after) saved = used.size();
    }
    used.resize(saved);  // samples after the checkpoint are repeated
    step = saved_after;
  }
  CHECK(used.size() == 7 * 8 + (8 - 7) * 24 + (11 - 8) * 24 + (14 - 11) * 5);
  CHECK(sorted(used) == iota(int64_t(used.size())));
}

TEST_CASE("a ramp of batches uses each sample once, on every number of ranks", "[data]") {
  for (const int64_t ranks : {1, 2, 4}) {
    const BatchLayout layout{
        .global_batch = 24,
        .micro_batch = 2,
        .ranks = ranks,
        .origin = 100,
        .ramp = {{.global_batch = 8, .end = 3}, {.global_batch = 16, .end = 5}}};
    layout.validate();
    CHECK(layout.largest_batch() == 24);
    std::vector<int64_t> used;
    for (int64_t step = 0; step < 8; ++step) {
      CHECK(layout.batch_at(step) == (step < 3 ? 8 : step < 5 ? 16 : 24));
      CHECK(layout.begin(step) == 100 + int64_t(used.size()));
      for (int64_t j = 0; j < layout.micro_batches(step); ++j) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          for (int64_t b = 0; b < 2; ++b) used.push_back(layout.first_position(step, rank, j) + b);
        }
      }
    }
    CHECK(used.size() == 3 * 8 + 2 * 16 + 3 * 24);
    for (int64_t& position : used) position -= 100;
    CHECK(sorted(used) == iota(int64_t(used.size())));
    // Checks consecutive micro-batches of a rank, from any resumed step on.
    for (const int64_t first : {0, 2, 3, 4, 6}) {
      int64_t index = 0;
      for (int64_t step = first; step < 8; ++step) {
        for (int64_t micro = 0; micro < layout.micro_batches(step); ++micro, ++index) {
          const BatchLayout::Place place = layout.place_of(first, index);
          CHECK(place.step == step);
          CHECK(place.micro == micro);
        }
      }
    }
  }
}

TEST_CASE("a global batch that ranks cannot share evenly is a configuration error", "[data]") {
  const auto validate = [](int64_t global_batch, int64_t micro_batch, int64_t ranks) {
    BatchLayout{global_batch, micro_batch, ranks}.validate();
  };
  CHECK_THROWS_AS(validate(10, 2, 3), ConfigError);
  const std::string message = test::message_of<ConfigError>([&] { validate(10, 2, 3); });
  CHECK(test::contains(message, "global-batch is 10"));
  CHECK(test::contains(message, "3 ranks"));
  CHECK_THROWS_AS(validate(0, 1, 1), ConfigError);
  CHECK_THROWS_AS(validate(4, 0, 1), ConfigError);
  CHECK_THROWS_AS(validate(4, 1, 0), ConfigError);
  CHECK_THROWS_AS(validate(4, INT64_MAX, 2), ConfigError);
  CHECK_NOTHROW(validate(12, 2, 3));
  BatchLayout ramp{.global_batch = 12, .micro_batch = 2, .ranks = 3, .ramp = {{18, 5}}};
  CHECK_NOTHROW(ramp.validate());
  ramp.ramp.push_back({.global_batch = 16, .end = 8});
  CHECK(test::contains(test::message_of<ConfigError>([&] { ramp.validate(); }), "is 16"));
  ramp.ramp.back() = {.global_batch = 18, .end = 5};
  CHECK_THROWS_AS(ramp.validate(), ConfigError);  // the second phase would have no steps
}

TEST_CASE("validation windows are the same for every number of ranks, each once", "[data]") {
  const int64_t windows = GENERATE(1, 2, 5, 16, 17);
  const int64_t seq_len = 4;
  REQUIRE(count_windows(windows * seq_len + 1, seq_len) == windows);
  const EvalRounds sampler(windows, /*batch=*/2);
  for (const int64_t ranks : {1, 2, 3, 8}) {
    CAPTURE(windows, ranks);
    std::vector<int64_t> seen;
    for (int64_t round = 0; round < sampler.rounds(ranks); ++round) {
      int64_t in_round = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const EvalRounds::Range range = sampler.range(round, rank, ranks);
        REQUIRE(range.count >= 0);
        REQUIRE(range.count <= 2);
        in_round += range.count;
        for (int64_t i = 0; i < range.count; ++i) seen.push_back(range.first + i);
      }
      REQUIRE(in_round > 0);  // in every evaluation round, at least one rank has windows
    }
    CHECK(seen == iota(windows));
  }
}

TEST_CASE("a rank without validation windows left has count 0", "[data]") {
  const EvalRounds sampler(5, 2);
  CHECK(sampler.rounds(4) == 1);
  CHECK(sampler.range(0, 2, 4).count == 1);
  CHECK(sampler.range(0, 3, 4).count == 0);
}

TEST_CASE("validation can be limited to the first rows", "[data]") {
  CHECK(EvalRounds(24, 2, /*max_samples=*/3).samples() == 3);
  CHECK(EvalRounds(24, 2, /*max_samples=*/1000).samples() == 24);
  CHECK_THROWS_AS(EvalRounds(24, 0), ConfigError);
}
