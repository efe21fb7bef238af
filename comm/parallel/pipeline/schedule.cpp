#include "shale/comm/parallel/pipeline/schedule.h"

#include <algorithm>
#include <array>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

using List = std::vector<Action>;
using enum ActionKind;

// Appends actions to a list. Numbers the micro-batches of each chunk and kind in ascending order.
class ListBuilder {
 public:
  explicit ListBuilder(int chunks) : done_(static_cast<size_t>(chunks)) {}

  void add(ActionKind kind, int chunk = 0) {
    list_.push_back({kind, chunk, next(kind, chunk)++});
  }
  void add(int times, ActionKind kind, int chunk = 0) {
    for (int i = 0; i < times; ++i) add(kind, chunk);
  }
  // Number of actions added so far.
  int count(ActionKind kind, int chunk = 0) { return next(kind, chunk); }
  List take() { return std::move(list_); }

 private:
  int& next(ActionKind kind, int chunk) {
    return done_[static_cast<size_t>(chunk)][static_cast<size_t>(kind)];
  }

  List list_;
  std::vector<std::array<int, 4>> done_;  // number of actions added so far, by chunk and kind
};

List gpipe_list(int micros) {
  ListBuilder list(1);
  list.add(micros, kForward);
  list.add(micros, kBackward);
  return list.take();
}

// Number of forwards that a rank runs before its first backward.
int warm_up(int rank, int ranks, int micros) {
  return std::min(ranks - 1 - rank, micros);
}

List one_f_one_b_list(int rank, int ranks, int micros) {
  ListBuilder list(1);
  const int ahead = warm_up(rank, ranks, micros);
  list.add(ahead, kForward);
  for (int i = ahead; i < micros; ++i) {
    list.add(kForward);
    list.add(kBackward);
  }
  list.add(ahead, kBackward);
  return list.take();
}

// Groups of `ranks` micro-batches pass through one chunk after another.
List interleaved_list(int rank, int ranks, int chunks, int micros) {
  ListBuilder list(chunks);
  const int total = micros * chunks;
  const int ahead = std::min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, total);
  const auto chunk_of = [&](int k) { return k % (ranks * chunks) / ranks; };
  const auto forward = [&](int k) { list.add(kForward, chunk_of(k)); };
  const auto backward = [&](int k) { list.add(kBackward, chunks - 1 - chunk_of(k)); };
  for (int k = 0; k < ahead; ++k) forward(k);
  for (int k = ahead; k < total; ++k) {
    forward(k);
    backward(k - ahead);
  }
  for (int k = total - ahead; k < total; ++k) backward(k);
  return list.take();
}

// Rank s leaves the weight gradients of s micro-batches to the end, where it would otherwise be
// idle.
List zb_h1_list(int rank, int ranks, int micros) {
  ListBuilder list(1);
  const int ahead = warm_up(rank, ranks, micros);
  list.add(ahead, kForward);
  for (int i = ahead; i < micros; ++i) {
    list.add(kForward);
    list.add(kBackwardInput);
    if (list.count(kBackwardInput) - list.count(kBackwardWeights) > rank) {
      list.add(kBackwardWeights);
    }
  }
  while (list.count(kBackwardInput) < micros) {
    list.add(kBackwardInput);
    list.add(kBackwardWeights);
  }
  list.add(micros - list.count(kBackwardWeights), kBackwardWeights);
  return list.take();
}

// Makes the list for at least 2 * ranks - 1 micro-batches, then drops the micro-batches from
// `micros` on.
List zbv_list(int rank, int ranks, int micros) {
  ListBuilder list(2);
  const int all = std::max(2 * ranks - 1, micros);
  const auto backward = [&](int chunk) {
    list.add(kBackwardInput, chunk);
    list.add(kBackwardWeights, chunk);
  };
  list.add(2 * (ranks - rank) - 1, kForward, 0);
  for (int i = 0; i < rank; ++i) {
    list.add(kForward, 1);
    list.add(kForward, 0);
  }
  for (int i = 0; i < ranks - rank; ++i) {
    list.add(kForward, 1);
    backward(1);
  }
  while (list.count(kForward, 1) < all) {
    if (list.count(kForward, 0) < all) list.add(kForward, 0);
    backward(0);
    list.add(kForward, 1);
    backward(1);
  }
  for (int i = 0; i < rank; ++i) {
    list.add(kBackwardInput, 0);
    list.add(kBackwardInput, 1);
  }
  for (int i = 0; i < ranks - rank; ++i) backward(0);
  list.add(all - list.count(kBackwardWeights, 1), kBackwardWeights, 1);
  list.add(all - list.count(kBackwardWeights, 0), kBackwardWeights, 0);
  List actions = list.take();
  std::erase_if(actions, [&](const Action& action) { return action.micro >= micros; });
  return actions;
}

void check_numbers(ScheduleKind kind, int ranks, int chunks, int micros) {
  const auto fail = [&](const auto&... what) {
    throw ConfigError(cat("pipeline schedule ", schedule_name(kind), ": ", what...));
  };
  if (ranks < 1 || chunks < 1 || micros < 1) {
    fail(ranks, " ranks, ", chunks, " chunks, ", micros,
         " micro-batches, expected 1 or more of each");
  }
  const bool interleaves = kind == ScheduleKind::kInterleaved;
  const int want = kind == ScheduleKind::kZbV ? 2 : 1;
  if (!interleaves && chunks != want) {
    fail(chunks, chunks == 1 ? " chunk" : " chunks", " on a rank, expected ", want);
  }
  if (interleaves && micros % ranks != 0) {
    fail(micros, " micro-batches per step, expected a multiple of the ", ranks, " stages");
  }
}

List make_list(ScheduleKind kind, int rank, const Schedule& schedule) {
  const auto [ranks, chunks, returns] = schedule.placement;
  switch (kind) {
    case ScheduleKind::kGpipe: return gpipe_list(schedule.micros);
    case ScheduleKind::k1F1B: return one_f_one_b_list(rank, ranks, schedule.micros);
    case ScheduleKind::kInterleaved: return interleaved_list(rank, ranks, chunks, schedule.micros);
    case ScheduleKind::kZbH1: return zb_h1_list(rank, ranks, schedule.micros);
    case ScheduleKind::kZbV: return zbv_list(rank, ranks, schedule.micros);
  }
  throw InternalError("pipeline schedule: unknown kind");
}

}  // namespace

std::string_view schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGpipe: return "gpipe";
    case ScheduleKind::k1F1B: return "1f1b";
    case ScheduleKind::kInterleaved: return "interleaved";
    case ScheduleKind::kZbH1: return "zb-h1";
    case ScheduleKind::kZbV: return "zbv";
  }
  return "unknown";
}

std::string describe(const Action& action) {
  constexpr std::array kNames = {"forward", "backward", "backward of inputs",
                                 "backward of weights"};
  return cat(kNames[static_cast<size_t>(action.kind)], " ", action.micro, " of chunk ",
             action.chunk);
}

bool Schedule::splits_backward() const {
  const auto splits = [](const Action& action) { return action.kind == kBackwardInput; };
  return std::any_of(lists.begin(), lists.end(),
                     [&](const List& list) { return std::any_of(list.begin(), list.end(), splits); });
}

Schedule make_schedule(ScheduleKind kind, int ranks, int chunks, int micros) {
  check_numbers(kind, ranks, chunks, micros);
  Schedule schedule{
      .placement = {.ranks = ranks, .chunks = chunks, .returns = kind == ScheduleKind::kZbV},
      .micros = micros,
      .lists = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.lists.push_back(make_list(kind, rank, schedule));
  }
  return schedule;
}

void check_schedule(const Schedule& schedule) {
  const StagePlacement& place = schedule.placement;
  const auto fail = [](const auto&... what) {
    throw ConfigError(cat("pipeline schedule: ", what...));
  };
  if (static_cast<int>(schedule.lists.size()) != place.ranks) {
    fail(schedule.lists.size(), " lists of actions, expected one for each of ", place.ranks,
         " ranks");
  }
  for (size_t rank = 0; rank < schedule.lists.size(); ++rank) {
    ListBuilder seen(place.chunks);  // count() is the next expected micro-batch
    for (const Action& action : schedule.lists[rank]) {
      const auto [kind, chunk, micro] = action;
      const std::string what = cat("rank ", rank, ": ", describe(action));
      if (chunk < 0 || chunk >= place.chunks || micro < 0 || micro >= schedule.micros) {
        fail(what, ", expected chunks below ", place.chunks, " and micro-batches below ",
             schedule.micros);
      }
      if (seen.count(kind, chunk) != micro) {
        fail(what, " comes where micro-batch ", seen.count(kind, chunk),
             " is next: expected micro-batches in ascending order");
      }
      const ActionKind before = kind == kBackwardWeights ? kBackwardInput : kForward;
      if (kind != kForward && seen.count(before, chunk) <= micro) {
        fail(what, " comes before ", describe({before, chunk, micro}));
      }
      seen.add(kind, chunk);
    }
    for (int chunk = 0; chunk < place.chunks; ++chunk) {
      const int whole = seen.count(kBackward, chunk), halves = seen.count(kBackwardWeights, chunk);
      const bool all = seen.count(kForward, chunk) == schedule.micros &&
                       (whole == schedule.micros ? seen.count(kBackwardInput, chunk) == 0
                                                 : whole == 0 && halves == schedule.micros);
      if (!all) fail("rank ", rank, ": chunk ", chunk, " lacks actions, or has too many");
    }
  }
}

}  // namespace shale::comm
