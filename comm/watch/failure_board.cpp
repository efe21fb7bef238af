#include "shale/comm/watch/failure_board.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace shale::comm {

struct FailureBoard::Entry {
  std::atomic<uint32_t> posted;
  std::atomic<uint32_t> listens;  // true: this rank has a listener that was not called yet
  int32_t code;
  int64_t time_ns;
  uint32_t caused;
  char message[2024];
};

struct FailureBoard::Table {
  alignas(64) std::atomic<uint32_t> failures;
  alignas(64) Entry entries[1];  // one entry for each rank
};

struct FailureBoard::Ear {
  std::mutex mutex;
  FailureListener listener;
};

std::shared_ptr<FailureBoard::Ear> FailureBoard::make_ear() {
  return std::make_shared<Ear>();
}

void FailureBoard::listen(FailureListener listener) {
  const std::lock_guard lock(ear_->mutex);
  ear_->listener = std::move(listener);
  if (memory_ != nullptr) table()->entries[rank_].listens = ear_->listener != nullptr ? 1 : 0;
}

void FailureBoard::tell(int code, const std::string& message) {
  const std::lock_guard lock(ear_->mutex);
  if (const FailureListener listener = std::exchange(ear_->listener, nullptr)) {
    listener(code, message);
  }
  if (memory_ != nullptr) table()->entries[rank_].listens = 0;
}

void FailureBoard::wait_for_listeners() const {
  constexpr std::chrono::seconds kPatience{1};
  const auto listens = [&] {
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_ && table()->entries[r].listens.load() != 0) return true;
    }
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (listens() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

size_t FailureBoard::bytes(int ranks) {
  return sizeof(Table) + sizeof(Entry) * static_cast<size_t>(ranks);
}

bool FailureBoard::any() const {
  return memory_ != nullptr && table()->failures.load(std::memory_order_acquire) > 0;
}

void FailureBoard::post(int code, std::string_view message, bool caused) {
  if (memory_ == nullptr) return;
  Entry& entry = table()->entries[rank_];
  if (entry.posted.load() != 0) return;
  entry.code = code;
  entry.caused = caused ? 1 : 0;
  entry.time_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  const size_t length = std::min(message.size(), sizeof entry.message - 1);
  std::memcpy(entry.message, message.data(), length);
  entry.message[length] = '\0';
  entry.posted.store(1, std::memory_order_release);
  table()->failures.fetch_add(1, std::memory_order_acq_rel);
  if (!caused) wait_for_listeners();
}

std::vector<FailureBoard::Report> FailureBoard::reports() const {
  std::vector<Report> list;
  if (memory_ == nullptr) return list;
  for (int r = 0; r < ranks_; ++r) {
    const Entry& entry = table()->entries[r];
    if (entry.posted.load(std::memory_order_acquire) == 0) continue;
    list.push_back({.rank = r,
                    .code = entry.code,
                    .time_ns = entry.time_ns,
                    .caused = entry.caused != 0,
                    .message = entry.message});
  }
  return list;
}

std::optional<FailureBoard::Report> FailureBoard::cause() const {
  std::optional<Report> first;
  for (const Report& report : reports()) {
    if (!report.caused && (!first || report.time_ns < first->time_ns)) first = report;
  }
  return first;
}

void FailureBoard::check() const {
  if (!any()) return;
  std::string text = "stopped, because another rank failed";
  for (const Report& report : reports()) {
    if (!report.caused) text += cat(": ", report.message);
  }
  const std::optional<Report> first = cause();
  throw PeerFailure(text, first ? first->code : static_cast<int>(ExitCode::kComm));
}

}  // namespace shale::comm
