#include "shale/comm/node/node_mailbox.h"

#include <algorithm>
#include <cstring>

namespace shale::comm {
namespace {

constexpr size_t kLine = 64;
// Space for a message header before the values, which start at a cache line.
constexpr size_t kHeaderBytes = (sizeof(Message) + kLine - 1) / kLine * kLine;

size_t slot_bytes(const LinkSpec& spec) {
  return kHeaderBytes + (static_cast<size_t>(spec.capacity_bytes) + kLine - 1) / kLine * kLine;
}

}  // namespace

struct NodeMailbox::End {
  alignas(64) Departure departure;
  std::atomic<uint32_t> told;  // the report is complete
  char report[2040];
};

struct NodeMailbox::Box {
  SharedCounter written;
  SharedCounter taken;
  End ends[2];  // the receiver's end, then the sender's
};

size_t NodeMailbox::bytes(const LinkSpec& spec) {
  return sizeof(Box) + slot_bytes(spec) * static_cast<size_t>(spec.slots);
}

NodeMailbox::~NodeMailbox() {
  box().ends[sends_ ? 1 : 0].departure.leave();
}

NodeMailbox::Box& NodeMailbox::box() const {
  return *static_cast<Box*>(memory_.data());
}

std::byte* NodeMailbox::slot() const {
  const size_t index = passed_ % static_cast<uint32_t>(spec_.slots);
  return static_cast<std::byte*>(memory_.data()) + sizeof(Box) + index * slot_bytes(spec_);
}

std::byte* NodeMailbox::room() {
  const bool free = box().taken.reached(passed_ + 1 - static_cast<uint32_t>(spec_.slots));
  return free ? slot() + kHeaderBytes : nullptr;
}

void NodeMailbox::put(const Message& message) {
  std::memcpy(slot(), &message, sizeof message);
  box().written.advance_to(++passed_);
}

bool NodeMailbox::all_taken() {
  return box().taken.reached(passed_);
}

const Message* NodeMailbox::next() {
  return box().written.reached(passed_ + 1) ? reinterpret_cast<const Message*>(slot()) : nullptr;
}

const std::byte* NodeMailbox::values() const {
  return slot() + kHeaderBytes;
}

void NodeMailbox::take() {
  box().taken.advance_to(++passed_);
}

bool NodeMailbox::wait(double timeout_s, const std::function<void()>& poll) {
  if (!sends_) return box().written.wait(passed_ + 1, policy_, timeout_s, poll);
  return box().taken.wait(passed_ + 1 - static_cast<uint32_t>(spec_.slots), policy_, timeout_s,
                          poll);
}

std::string NodeMailbox::told() {
  const End& other = box().ends[sends_ ? 0 : 1];
  return other.told.load(std::memory_order_acquire) != 0 ? other.report : std::string();
}

void NodeMailbox::tell(const std::string& report) {
  End& mine = box().ends[sends_ ? 1 : 0];
  if (mine.told.load(std::memory_order_relaxed) != 0) return;
  const size_t length = std::min(report.size(), sizeof mine.report - 1);
  std::memcpy(mine.report, report.data(), length);
  mine.report[length] = '\0';
  mine.told.store(1, std::memory_order_release);
}

bool NodeMailbox::peer_left() {
  if (!box().ends[sends_ ? 0 : 1].departure.is_final()) return false;
  return sends_ ? room() == nullptr : next() == nullptr;
}

}  // namespace shale::comm
