#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace shale::emulator {

// Vector clocks (C. Fidge 1988; F. Mattern 1988) of the actors of a block: actor a has seen the
// accesses that actor b made up to time seen(a, b). Actors are the threads; engines that access
// memory on their own (TMA, a warpgroup's wgmma) get the numbers above.
//
// Threads that met at the same barrier share what they know of others, so that a meeting costs one
// vector and not one per thread. All who meet go on with the same own time, the latest of theirs
// plus one: threads in step then have equal times, which lets a shadow cell name many of them at
// once.
using ClockVector = std::vector<uint32_t>;

// What has been handed over at a barrier: the knowledge of all who released into it.
class SyncClock {
 public:
  void clear() { *this = {}; }

 private:
  friend class Clocks;
  ClockVector latest_{};
  std::vector<std::shared_ptr<const ClockVector>> merged_{};  // already in latest_
  // What those who learned from this knew before and after: whoever knew the same shares what is
  // known now.
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
  // The same by what the actor was told, of itself too: what those know who met it last.
  uint32_t known(int actor, int other) const {
    const Clock& clock = clocks_[static_cast<size_t>(actor)];
    const auto index = static_cast<size_t>(other);  // an actor may have come since
    return clock.known && index < clock.known->size() ? (*clock.known)[index] : 0;
  }
  bool know_the_same(int actor, int other) const {
    return clocks_[static_cast<size_t>(actor)].known == clocks_[static_cast<size_t>(other)].known;
  }
  int add_actor() {
    clocks_.emplace_back();
    return static_cast<int>(clocks_.size()) - 1;
  }
  // Ends the actor's present time, and gives its number.
  uint32_t tick(int actor) { return clocks_[static_cast<size_t>(actor)].own++; }

  // What `actor` has done and seen until now becomes part of `sync`; what it does next does not.
  void release(int actor, SyncClock& sync) {
    Clock& clock = clocks_[static_cast<size_t>(actor)];
    sync.latest_.resize(clocks_.size());
    merge(clock.known, sync);
    uint32_t& own = sync.latest_[static_cast<size_t>(actor)];
    own = std::max(own, clock.own++);
    sync.lessons_.clear();
  }
  // The same for one time of an actor that has passed.
  void release_time(int actor, uint32_t time, SyncClock& sync) const {
    sync.latest_.resize(clocks_.size());
    uint32_t& latest = sync.latest_[static_cast<size_t>(actor)];
    latest = std::max(latest, time);
    sync.lessons_.clear();
  }

  // `actors`, each of which has released into `sync`, have now seen all of it.
  void acquire(std::span<const int> actors, const SyncClock& sync) {
    const auto known = std::make_shared<const ClockVector>(sync.latest_);
    uint32_t latest = 0;
    for (const int actor : actors) latest = std::max(latest, now(actor));
    for (const int actor : actors) clocks_[static_cast<size_t>(actor)] = {latest, known};
  }

  // `actor` has seen all of `sync`, whether it released into it or not.
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
    uint32_t own = 1;                            // its own time
    std::shared_ptr<const ClockVector> known{};  // null: nothing of the others
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
