#include "shale/comm/watch/recent_collectives.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "shale/base/text.h"

namespace shale::comm {
namespace {

std::string tenths(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

}  // namespace

uint64_t RecentCollectives::begin(std::string_view group, const Fingerprint& call, int64_t bytes,
                                  int first_rank, bool on_device) {
  const std::lock_guard lock(mutex_);
  Entry& entry = ring_[++count_ % kKept];
  entry = {.id = count_,
           .first_rank = first_rank,
           .call = call,
           .bytes = bytes,
           .begun = Clock::now(),
           .running = true,
           .on_device = on_device};
  group.copy(entry.group.data(), entry.group.size() - 1);
  return count_;
}

void RecentCollectives::end(uint64_t id) {
  const std::lock_guard lock(mutex_);
  Entry& entry = ring_[id % kKept];
  if (entry.id != id) return;  // later collectives have reused this entry
  entry.ended = Clock::now();
  entry.running = false;
  if (listener_) listener_(entry);
}

void RecentCollectives::listen(Listener listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

std::vector<RecentCollectives::Entry> RecentCollectives::newest_first() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (const Entry& entry : ring_) {
    if (entry.id != 0) entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.id > b.id; });
  return entries;
}

std::vector<std::string> RecentCollectives::describe_all() const {
  const auto now = Clock::now();
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  std::vector<std::string> lines;
  for (const Entry& entry : newest_first()) {
    const std::string when = entry.running
                                 ? cat("running for ", tenths(seconds(now - entry.begun)))
                                 : cat("ended ", tenths(seconds(now - entry.ended)), " ago");
    lines.push_back(cat(when, ": ", describe(entry.call), ", ",
                        format_bytes(static_cast<double>(entry.bytes)), ", group '",
                        std::string_view(entry.group.data()), "'"));
  }
  return lines;
}

}  // namespace shale::comm
