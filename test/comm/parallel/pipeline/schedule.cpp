#include "shale/comm/parallel/pipeline/schedule.h"

#include <algorithm>
#include <optional>
#include <random>

#include "shale/comm/parallel/pipeline/simulate.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using namespace comm;
using enum ScheduleKind;

constexpr int kTries = 300;

// Numbers of ranks, chunks and micro-batches that are valid for a kind of schedule.
struct Numbers {
  int ranks, chunks, micros;
};

Numbers any_numbers(ScheduleKind kind, std::mt19937& random, int most_ranks = 16) {
  const auto upto = [&](int n) { return static_cast<int>(random() % unsigned(n)) + 1; };
  const int ranks = upto(most_ranks), micros = upto(64);
  if (kind == kZbV) return {ranks, 2, micros};
  if (kind != kInterleaved) return {ranks, 1, micros};
  return {ranks, upto(4), std::max(1, micros / ranks) * ranks};
}

std::vector<StageTimes> equal_times(const StagePlacement& place, StageTimes of_rank) {
  for (double* time : {&of_rank.forward, &of_rank.backward_input, &of_rank.backward_weights}) {
    *time /= place.chunks;
  }
  return std::vector<StageTimes>(size_t(place.stages()), of_rank);
}

std::vector<StageTimes> any_times(const StagePlacement& place, std::mt19937& random) {
  std::uniform_real_distribution<double> any(0.01, 3);
  std::vector<StageTimes> times(static_cast<size_t>(place.stages()));
  for (StageTimes& stage : times) stage = {any(random), any(random), any(random)};
  return times;
}

}  // namespace

TEST_CASE("every schedule ends, with one slot and more, whatever actions take") {
  std::mt19937 random(1);
  for (const ScheduleKind kind : {kGpipe, k1F1B, kInterleaved, kZbH1, kZbV}) {
    for (int i = 0; i < kTries; ++i) {
      const auto [ranks, chunks, micros] = any_numbers(kind, random);
      const Schedule schedule = make_schedule(kind, ranks, chunks, micros);
      CAPTURE(schedule_name(kind), ranks, chunks, micros);
      const auto times = any_times(schedule.placement, random);
      double before = 0;
      for (const int slots : {3, 2, 1}) {  // a step with fewer message slots is never faster
        const double makespan = simulate(schedule, {.slots = slots, .times = times}).makespan;
        CHECK(makespan >= before);
        before = makespan;
      }
      CHECK(schedule.splits_backward() == (kind == kZbH1 || kind == kZbV));
    }
  }
}

// The unit of time is one rank's work for one micro-batch. docs/explanation/parallelism.md has a
// table of the formulas.
TEST_CASE("idle time is what the formulas say when all stages take the same time") {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> any(0.5, 2);
  for (const ScheduleKind kind : {kGpipe, k1F1B, kInterleaved, kZbH1, kZbV}) {
    for (int i = 0; i < kTries; ++i) {
      auto [ranks, chunks, micros] = any_numbers(kind, random);
      double f = any(random), b = any(random), w = any(random);
      if (kind == kZbH1) {
        micros = std::max(micros, ranks);
        // So short that weight gradients fit in the time in which other ranks compute input
        // gradients.
        w *= std::min(f, b) / 2;
      } else if (kind == kZbV) {
        micros = std::max(micros, 2 * ranks);
        f = b = w = 1;
      }
      const Schedule schedule = make_schedule(kind, ranks, chunks, micros);
      const Simulation done = simulate(
          schedule, {.times = equal_times(schedule.placement, {f, b, w})});
      CAPTURE(schedule_name(kind), ranks, chunks, micros, f, b, w);
      const double stages_after = ranks - 1;
      const double want = kind == kInterleaved ? stages_after * (f + b + w) / chunks
                          : kind == kZbH1      ? stages_after * (f + b - w)
                          : kind == kZbV       ? stages_after / 2
                                               : stages_after * (f + b + w);
      for (const double idle : done.idle) CHECK(idle == Approx(want).margin(1e-9));
      CHECK(done.makespan == Approx(micros * (f + b + w) + want));
    }
  }
}

TEST_CASE("ranks hold as many activations as the formulas say") {
  std::mt19937 random(3);
  for (const ScheduleKind kind : {kGpipe, k1F1B, kInterleaved, kZbH1, kZbV}) {
    for (int i = 0; i < kTries; ++i) {
      auto [ranks, chunks, micros] = any_numbers(kind, random);
      if (kind == kZbV) micros = std::max(micros, 2 * ranks);
      const Simulation done = simulate(make_schedule(kind, ranks, chunks, micros));
      CAPTURE(schedule_name(kind), ranks, chunks, micros);
      for (int rank = 0; rank < ranks; ++rank) {
        const int interleaved = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1;
        const int want = kind == kGpipe         ? micros
                         : kind == k1F1B        ? std::min(ranks - rank, micros)
                         : kind == kInterleaved ? std::min(interleaved, micros * chunks)
                         : kind == kZbH1        ? std::min(ranks, micros)
                                                : 2 * ranks;
        CHECK(done.held[size_t(rank)] == want);
      }
    }
  }
}

// All messages from one rank to another in one direction use the same stream on both GPUs.
TEST_CASE("a rank receives in the order in which the other one sends, over all chunks") {
  using Messages = std::map<std::tuple<int, int, bool>, std::vector<std::pair<int, int>>>;
  std::mt19937 random(5);
  for (const ScheduleKind kind : {kGpipe, k1F1B, kInterleaved, kZbH1, kZbV}) {
    for (int i = 0; i < kTries; ++i) {
      const auto [ranks, chunks, micros] = any_numbers(kind, random);
      const Schedule schedule = make_schedule(kind, ranks, chunks, micros);
      const StagePlacement& place = schedule.placement;
      // Key: sender, receiver, direction; value: receiving stage, micro-batch.
      Messages sent, received;
      const auto note = [&](Messages& messages, int from, int to, bool forward, int micro) {
        if (std::min(from, to) < 0 || std::max(from, to) >= place.stages()) return;
        if (place.rank_of(from) == place.rank_of(to)) return;
        messages[{place.rank_of(from), place.rank_of(to), forward}].emplace_back(to, micro);
      };
      for (int rank = 0; rank < ranks; ++rank) {
        for (const Action& action : schedule.lists[size_t(rank)]) {
          if (action.kind == ActionKind::kBackwardWeights) continue;
          const bool forward = action.kind == ActionKind::kForward;
          const int stage = place.stage_of(rank, action.chunk), next = forward ? 1 : -1;
          note(received, stage - next, stage, forward, action.micro);
          note(sent, stage, stage + next, forward, action.micro);
        }
      }
      CAPTURE(schedule_name(kind), ranks, chunks, micros);
      CHECK(sent == received);
    }
  }
}

TEST_CASE("numbers that a schedule does not take are refused, with what fits") {
  const auto error = [](ScheduleKind kind, int ranks, int chunks, int micros) {
    return message_of<ConfigError>([&] { make_schedule(kind, ranks, chunks, micros); });
  };
  CHECK(contains(error(kInterleaved, 4, 2, 6),
                 "6 micro-batches per step, expected a multiple of the 4"));
  CHECK(contains(error(k1F1B, 4, 2, 8), "1f1b: 2 chunks on a rank, expected 1"));
  CHECK(contains(error(kZbV, 4, 1, 8), "zbv: 1 chunk on a rank, expected 2"));
  CHECK(contains(error(kGpipe, 0, 1, 8), "expected 1 or more"));
}

TEST_CASE("a list that lacks an action, or has it elsewhere, is refused by name") {
  const auto error = [](const std::function<void(std::vector<Action>&)>& change) {
    Schedule schedule = make_schedule(k1F1B, 2, 1, 4);
    change(schedule.lists[0]);
    return message_of<ConfigError>([&] { simulate(schedule); });
  };
  using List = std::vector<Action>;
  CHECK(contains(error([](List& list) { list.pop_back(); }), "rank 0: chunk 0 lacks actions"));
  CHECK(contains(error([](List& list) { list.push_back(list.back()); }), "backward 3 of chunk 0"));
  CHECK(contains(error([](List& list) { list[0].chunk = 1; }), "expected chunks below 1"));
  CHECK(contains(error([](List& list) { std::swap(list[0], list[1]); }),
                 "expected micro-batches in ascending order"));
  CHECK(contains(error([](List& list) { std::swap(list[0], list[2]); }),
                 "backward 0 of chunk 0 comes before forward 0 of chunk 0"));
  CHECK(contains(error([](List& list) { list[2].kind = ActionKind::kBackwardInput; }), "rank 0"));
  Schedule short_of_one = make_schedule(k1F1B, 2, 1, 4);
  short_of_one.lists.pop_back();
  CHECK(contains(message_of<ConfigError>([&] { simulate(short_of_one); }),
                 "1 lists of actions, expected one"));
}

TEST_CASE("two actions that are swapped make ranks wait for each other, who are named") {
  Schedule schedule = make_schedule(k1F1B, 2, 1, 4);
  // Makes a deadlock: the first rank waits for a gradient before it sends the activations that rank
  // 2 needs.
  auto& first = schedule.lists[0];
  REQUIRE(first[1] == Action{ActionKind::kForward, 0, 1});
  REQUIRE(first[2] == Action{ActionKind::kBackward, 0, 0});
  auto& second = schedule.lists[1];
  REQUIRE(second[1] == Action{ActionKind::kBackward, 0, 0});
  REQUIRE(second[2] == Action{ActionKind::kForward, 0, 1});
  std::swap(first[1], first[2]);
  std::swap(second[1], second[2]);
  const std::string message = message_of<ConfigError>([&] { simulate(schedule); });
  CHECK(contains(message,
                 "deadlock: rank 0 waits in backward 0 of chunk 0 for rank 1; rank 1 waits in "
                 "forward 1 of chunk 0 for rank 0"));
}

// Shuffles lists of actions, but keeps the order of micro-batches within each chunk.
TEST_CASE("a shuffled schedule ends at all speeds or at none") {
  std::mt19937 random(4);
  int refused = 0, proven = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto [ranks, chunks, micros] = any_numbers(kInterleaved, random, 4);
    Schedule schedule = make_schedule(kInterleaved, ranks, chunks, std::min(micros, 4 * ranks));
    for (auto& list : schedule.lists) {
      for (int swaps = 0; swaps < 2; ++swaps) {
        const size_t at = random() % list.size();
        if (at + 1 == list.size()) continue;
        std::swap(list[at], list[at + 1]);
        try {
          check_schedule(schedule);
        } catch (const ConfigError&) {
          std::swap(list[at], list[at + 1]);
        }
      }
    }
    std::optional<bool> ends;
    for (int speed = 0; speed < 20; ++speed) {
      bool now = true;
      try {
        simulate(schedule, {.times = any_times(schedule.placement, random)});
      } catch (const ConfigError&) {
        now = false;
      }
      if (!ends) ends = now;
      REQUIRE(now == *ends);
    }
    (*ends ? proven : refused) += 1;
  }
  CHECK(proven > 0);
  CHECK(refused > 0);
}

}  // namespace shale::test
