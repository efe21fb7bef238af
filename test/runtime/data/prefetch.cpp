#include "shale/runtime/data/prefetch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/test/support/batches.h"

using namespace shale;

namespace {

// A stream of the tokens 0, 1, 2, ..., so that a window's content shows its position.
class CountingStream final : public TokenStream {
 public:
  explicit CountingStream(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t vocab_bound() const override { return size_; }
  void read(int64_t begin, std::span<int32_t> out) const override {
    if (begin < 0 || begin + static_cast<int64_t>(out.size()) > size_) {
      throw InternalError("read outside");
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<int32_t>(begin + static_cast<int64_t>(i));
    }
  }

 private:
  int64_t size_;
};

std::span<const int32_t> inputs_of(const Batch& batch) {
  return batch.field("inputs").values<int32_t>();
}
std::span<const int32_t> targets_of(const Batch& batch) {
  return batch.field("targets").values<int32_t>();
}

bool fill_with_index(int64_t index, Batch& batch) {
  batch.first_position = index;
  std::ranges::fill(TokenBatch(batch, 2, 3).inputs, static_cast<int32_t>(index));
  return true;
}

}  // namespace

TEST_CASE("batches come in order and stay as they are until the next call", "[data]") {
  const int depth = GENERATE(1, 2, 5), workers = GENERATE(1, 2, 4);
  Prefetcher prefetcher(fill_with_index, {.depth = depth, .workers = workers});
  for (int64_t i = 0; i < 200; ++i) {
    const Batch* batch = prefetcher.next();
    REQUIRE(batch != nullptr);
    // Lets the prefetcher make more batches.
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    REQUIRE(batch->first_position == i);
    REQUIRE(std::ranges::equal(inputs_of(*batch), std::vector(6, static_cast<int32_t>(i))));
  }
}

TEST_CASE("no more than depth batches are made ahead", "[data]") {
  const int depth = GENERATE(1, 3), workers = GENERATE(1, 3);
  std::atomic<int64_t> made = 0;
  Prefetcher prefetcher(
      [&made](int64_t index, Batch& batch) {
        ++made;
        return fill_with_index(index, batch);
      },
      {.depth = depth, .workers = workers});
  for (int64_t taken = 0; taken < 5; ++taken) {
    // The prefetcher makes `depth` batches ahead, and no more than that.
    while (made < taken + depth) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    REQUIRE(made == taken + depth);
    REQUIRE(prefetcher.next() != nullptr);
  }
}

TEST_CASE("batches use the same memory again", "[data]") {
  Prefetcher prefetcher(fill_with_index, {.depth = 2});
  std::set<const int32_t*> seen;
  for (int i = 0; i < 50; ++i) seen.insert(inputs_of(*prefetcher.next()).data());
  CHECK(seen.size() <= 3);
}

TEST_CASE("the end of the source is a null batch, again and again", "[data]") {
  const int workers = GENERATE(1, 2, 4);
  Prefetcher prefetcher(
      [](int64_t index, Batch& batch) { return index < 3 && fill_with_index(index, batch); },
      {.depth = 4, .workers = workers});
  for (int i = 0; i < 3; ++i) REQUIRE(prefetcher.next() != nullptr);
  CHECK(prefetcher.next() == nullptr);
  CHECK(prefetcher.next() == nullptr);
}

TEST_CASE("an exception comes out after the batches made before it, in every later call",
          "[data]") {
  const int workers = GENERATE(1, 3);
  Prefetcher prefetcher(
      [](int64_t index, Batch& batch) {
        if (index == 2) throw DataError("bad token");
        return fill_with_index(index, batch);
      },
      {.depth = 4, .workers = workers});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(prefetcher.next()->first_position == 0);
  CHECK(prefetcher.next()->first_position == 1);
  CHECK_THROWS_AS(prefetcher.next(), DataError);
  CHECK_THROWS_AS(prefetcher.next(), DataError);
}

TEST_CASE("a prefetcher can be destroyed at any moment", "[data]") {
  // The prefetcher ends at one of five moments: 0: at once; 1: after the first batch; 2: when the
  // queue is full; 3: after the last batch; 4: on failure.
  for (int moment = 0; moment < 5; ++moment) {
    auto done = std::async(std::launch::async, [moment] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        Prefetcher prefetcher(
            [moment](int64_t index, Batch& batch) {
              if (moment == 4) throw DataError("bad token");
              return (moment != 3 || index < 1) && fill_with_index(index, batch);
            },
            {.depth = 2, .workers = 1 + repeat % 3});
        if (moment == 1) prefetcher.next();
        if (moment >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    // A thread that hangs cannot be stopped, so a hang ends the program.
    if (done.wait_for(std::chrono::seconds(60)) != std::future_status::ready) std::abort();
    done.get();
  }
  SUCCEED();
}

TEST_CASE("a step does not wait for storage that is slow but fast enough", "[data]") {
  using Clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  // `best` is the share of the time that steps wait for data. Without prefetching it would be a
  // third. Other programs may delay an attempt, so one good attempt is enough.
  double best = 1;
  for (int attempt = 0; attempt < 5 && best >= 0.05; ++attempt) {
    Prefetcher prefetcher([](int64_t index, Batch& batch) {
      std::this_thread::sleep_for(milliseconds(3));
      return fill_with_index(index, batch);
    });
    REQUIRE(prefetcher.next() != nullptr);
    std::chrono::duration<double> waited{}, all{};
    for (int step = 0; step < 50; ++step) {
      const Clock::time_point begin = Clock::now();
      std::this_thread::sleep_for(milliseconds(6));  // time of a training step
      const Clock::time_point computed = Clock::now();
      REQUIRE(prefetcher.next() != nullptr);
      waited += Clock::now() - computed;
      all += Clock::now() - begin;
    }
    best = std::min(best, waited / all);
  }
  CHECK(best < 0.05);
}

TEST_CASE("a prefetcher without room is an error", "[data]") {
  CHECK_THROWS_AS(Prefetcher(fill_with_index, {.depth = 0}), InternalError);
  CHECK_THROWS_AS(Prefetcher(fill_with_index, {.workers = 0}), InternalError);
}

TEST_CASE("several workers make batches at a time, which come in order", "[data]") {
  std::atomic<int> at_work = 0, most = 0;
  Prefetcher prefetcher(
      [&](int64_t index, Batch& batch) {
        const int now = ++at_work;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {}
        // The first batch takes longest to make.
        std::this_thread::sleep_for(std::chrono::milliseconds(index == 0 ? 50 : 5));
        --at_work;
        return fill_with_index(index, batch);
      },
      {.depth = 3, .workers = 3});
  for (int64_t i = 0; i < 20; ++i) REQUIRE(prefetcher.next()->first_position == i);
  CHECK(most > 1);
  CHECK(most <= 3);
}

TEST_CASE("training batches are the samples of their positions, targets one token on", "[data]") {
  const auto tokens = std::make_shared<CountingStream>(1000);
  const int64_t seq_len = 8;
  const TrainSampler sampler(1000, seq_len, 3);
  const auto samples = window_samples(tokens, sampler);
  const BatchLayout layout{.global_batch = 8, .micro_batch = 2, .ranks = 2};
  for (const int64_t rank : {0, 1}) {
    const BatchSource source = train_batches({samples, seq_len, layout, rank, /*first_step=*/100});
    Batch batch;
    for (int64_t i = 0; i < 6; ++i) {  // three steps with two micro-batches each
      REQUIRE(source(i, batch));
      REQUIRE(batch.first_position == layout.first_position(100 + i / 2, rank, i % 2));
      REQUIRE(batch.count == 2);
      for (int64_t b = 0; b < 2; ++b) {
        const int64_t begin = sampler.window(batch.first_position + b).begin;
        for (int64_t t = 0; t < seq_len; ++t) {
          const auto at = static_cast<size_t>(b * seq_len + t);
          REQUIRE(inputs_of(batch)[at] == begin + t);
          REQUIRE(targets_of(batch)[at] == begin + t + 1);
        }
      }
    }
  }
  test::check_workers_agree(train_batches({samples, seq_len, layout, 1, 0}), 100);
  CHECK_THROWS_AS(train_batches({samples, seq_len, layout, 2, 0}), InternalError);
  CHECK_THROWS_AS(train_batches({samples, seq_len, {7, 2, 2}, 0, 0}), ConfigError);
}

TEST_CASE("validation batches are padded with targets that the loss ignores", "[data]") {
  const auto tokens = std::make_shared<CountingStream>(5 * 4 + 1);
  const auto rows = window_rows(tokens, 4);
  const EvalRounds sampler(rows->size(), /*batch=*/2);
  std::vector<int32_t> inputs;
  int64_t ignored = 0;
  for (const int64_t rank : {0, 1, 2, 3}) {
    const BatchSource source = eval_batches({rows, 4, sampler, rank, 4});
    Batch batch;
    // The content of an earlier batch must be overwritten.
    const TokenBatch left(batch, 2, 4);
    std::ranges::fill(left.inputs, 77);
    std::ranges::fill(left.targets, 77);
    REQUIRE(source(0, batch));
    const auto filled = static_cast<size_t>(batch.count * 4);
    for (size_t i = 0; i < 8; ++i) {
      if (i < filled) {
        REQUIRE(targets_of(batch)[i] == inputs_of(batch)[i] + 1);
        inputs.push_back(inputs_of(batch)[i]);
      } else {
        REQUIRE(targets_of(batch)[i] == kernels::kIgnoreTarget);
        REQUIRE(inputs_of(batch)[i] == 0);
        ++ignored;
      }
    }
    CHECK_FALSE(source(1, batch));
  }
  std::vector<int32_t> want;
  for (int32_t i = 0; i < 20; ++i) want.push_back(i);
  CHECK(inputs == want);
  CHECK(ignored == 3 * 4);
}
