#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace shale::emulator {

// Vector clocks (C. Fidge 1988; F. Mattern 1988) of the actors of a cluster: actor a has seen the
// accesses of actor b up to time seen(a, b). The first actors are the threads; the next ones are
// the engines that access memory on their own (TMA, a warpgroup's wgmma).
//
// Threads that have waited at the same barrier share one vector of the times they have seen, so
// that a barrier needs one vector and not one per thread. All of these threads continue with the
// same own time, the latest of their times plus one. So threads between the same barriers have
// equal times, and a shadow cell can name many threads at once.
using ClockVector = std::vector<uint32_t>;

// Clock of a synchronisation object such as a barrier. It holds the times that have been seen by
// the actors which released into it.
class SyncClock {
 public:
  void clear() { *this = {}; }

 private:
  friend class Clocks;
  ClockVector latest_{};
  // vectors already merged into latest_, to skip them
  std::vector<std::shared_ptr<const ClockVector>> merged_{};
  // What an actor had seen before and after it acquired this clock. Actors with the same `before`
  // share `after`.
  struct Lesson {
    std::shared_ptr<const ClockVector> before, after;
  };
  std::vector<Lesson> lessons_{};
};

class Clocks {
 public:
  void reset(int actors) {
    clocks_.resize(static_cast<size_t>(actors));
    for (Clock& clock : clocks_) clock = {};
  }
  uint32_t now(int actor) const { return clocks_[static_cast<size_t>(actor)].own; }
  uint32_t seen(int actor, int other) const {
    const Clock& clock = clocks_[static_cast<size_t>(actor)];
    return actor == other ? clock.own : known(actor, other);
  }
  // Returns the time in the vector that `actor` shares with the threads that waited at the same
  // barrier. Unlike seen(), this also holds if `other` is the actor itself.
  uint32_t known(int actor, int other) const {
    const Clock& clock = clocks_[static_cast<size_t>(actor)];
    const auto index = static_cast<size_t>(other);  // `known` may lack actors that were added later
    return clock.known && index < clock.known->size() ? (*clock.known)[index] : 0;
  }
  bool know_the_same(int actor, int other) const {
    return clocks_[static_cast<size_t>(actor)].known == clocks_[static_cast<size_t>(other)].known;
  }
  int add_actor() {
    clocks_.emplace_back();
    return static_cast<int>(clocks_.size()) - 1;
  }
  // Ends the actor's current time, and returns its number.
  uint32_t tick(int actor) { return clocks_[static_cast<size_t>(actor)].own++; }

  // Adds to `sync` everything that `actor` has done and seen until now, but not what it does later.
  void release(int actor, SyncClock& sync) {
    Clock& clock = clocks_[static_cast<size_t>(actor)];
    sync.latest_.resize(clocks_.size());
    merge(clock.known, sync);
    uint32_t& own = sync.latest_[static_cast<size_t>(actor)];
    own = std::max(own, clock.own++);
    sync.lessons_.clear();
  }
  // Adds to `sync` that `actor` has done everything up to `time`.
  void release_time(int actor, uint32_t time, SyncClock& sync) const {
    sync.latest_.resize(clocks_.size());
    uint32_t& latest = sync.latest_[static_cast<size_t>(actor)];
    latest = std::max(latest, time);
    sync.lessons_.clear();
  }

  // Makes all of `sync` seen by `actors`, each of which must have called release() on it.
  void acquire(std::span<const int> actors, const SyncClock& sync) {
    const auto known = std::make_shared<const ClockVector>(sync.latest_);
    uint32_t latest = 0;
    for (const int actor : actors) latest = std::max(latest, now(actor));
    for (const int actor : actors) clocks_[static_cast<size_t>(actor)] = {latest, known};
  }

  // Makes all of `sync` seen by `actor`, which need not have called release() on it.
  void learn(int actor, SyncClock& sync) {
    Clock& clock = clocks_[static_cast<size_t>(actor)];
    const auto lesson =
        std::find_if(sync.lessons_.begin(), sync.lessons_.end(),
                     [&](const SyncClock::Lesson& other) { return other.before == clock.known; });
    if (lesson != sync.lessons_.end()) {
      clock.known = lesson->after;
      return;
    }
    auto knows = std::make_shared<ClockVector>(sync.latest_);
    knows->resize(clocks_.size());
    for (size_t i = 0; clock.known && i < clock.known->size(); ++i) {
      (*knows)[i] = std::max((*knows)[i], (*clock.known)[i]);
    }
    sync.lessons_.push_back({clock.known, knows});
    clock.known = std::move(knows);
  }

 private:
  struct Clock {
    uint32_t own = 1;                            // the actor's current time
    std::shared_ptr<const ClockVector> known{};  // times of others that it has seen; null: none
  };

  static void merge(const std::shared_ptr<const ClockVector>& known, SyncClock& sync) {
    if (!known || std::find(sync.merged_.begin(), sync.merged_.end(), known) != sync.merged_.end())
      return;
    sync.merged_.push_back(known);
    for (size_t i = 0; i < known->size(); ++i) {
      sync.latest_[i] = std::max(sync.latest_[i], (*known)[i]);
    }
  }

  std::vector<Clock> clocks_{};
};

}  // namespace shale::emulator
