// Writes a snapshot in the format of torch.cuda.memory._snapshot(), with only what the viewer uses:
// a trace of allocations with their stacks, and a single segment. Uses opcodes of pickle protocol 2
// (PEP 307): containers that begin with a mark, and no memo.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/models/training/report/memory_profile.h"

namespace shale::models {
namespace {

class Pickle {
 public:
  Pickle() : bytes_("\x80\x02", 2) {}

  void begin_list() { bytes_ += "]("; }
  // Limits the stack that readers need. Call it between the items of a long list.
  void go_on() { bytes_ += "e("; }
  void end_list() { bytes_ += 'e'; }
  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void text(std::string_view value) {
    bytes_ += 'X';
    little_endian(value.size(), 4);
    bytes_ += value;
  }
  void integer(int64_t value) {
    bytes_ += "\x8a\x08";  // opcode LONG1 with 8 bytes
    little_endian(static_cast<uint64_t>(value), 8);
  }
  void item(std::string_view key, std::string_view value) {
    text(key);
    text(value);
  }
  void item(std::string_view key, int64_t value) {
    text(key);
    integer(value);
  }
  std::string take() { return std::move(bytes_) + '.'; }

 private:
  void little_endian(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  std::string bytes_;
};

// Assigns addresses by first fit, because the viewer identifies allocations by their addresses.
class Addresses {
 public:
  int64_t take(int64_t bytes) {
    int64_t at = 0;
    for (const auto& [begin, end] : used_) {
      if (begin - at >= bytes) break;
      at = end;
    }
    used_[at] = at + bytes;
    end_ = std::max(end_, at + bytes);
    return at;
  }
  void give_back(int64_t at) { used_.erase(at); }
  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> used_;
  int64_t end_ = 0;
};

constexpr int64_t kBase = int64_t{1} << 32;

void add_frame(Pickle& pickle, std::string_view name) {
  pickle.begin_dict();
  pickle.item("filename", "");
  pickle.item("line", int64_t{0});
  pickle.item("name", name);
  pickle.end_dict();
}

void add_stack(Pickle& pickle, const MemoryLedger::Allocation& of) {
  pickle.text("frames");
  pickle.begin_list();
  add_frame(pickle, of.what);
  if (!of.place.empty()) add_frame(pickle, of.place);
  add_frame(pickle, memory_tag_name(of.tag));
  pickle.end_list();
}

struct Placed {
  const MemoryLedger::Allocation* of = nullptr;
  int64_t address = 0;
};

void add_entry(Pickle& pickle, std::string_view action, const Placed& placed, int64_t time) {
  pickle.begin_dict();
  pickle.item("action", action);
  pickle.item("addr", placed.address);
  pickle.item("size", placed.of->bytes);
  pickle.item("stream", int64_t{0});
  pickle.item("time_us", time);
  add_stack(pickle, *placed.of);
  pickle.end_dict();
}

void add_block(Pickle& pickle, int64_t address, int64_t bytes, const MemoryLedger::Allocation* of) {
  pickle.begin_dict();
  pickle.item("address", address);
  pickle.item("size", bytes);
  pickle.item("requested_size", bytes);
  pickle.item("state", of != nullptr ? "active_allocated" : "inactive");
  if (of != nullptr) add_stack(pickle, *of);
  pickle.end_dict();
}

// Adds the segment with all blocks. Free memory is a block too, because the viewer assumes that a
// block begins where the previous one ends.
void add_segment(Pickle& pickle, const std::vector<Placed>& live, int64_t bytes) {
  int64_t in_use = 0;
  for (const Placed& placed : live) in_use += placed.of->bytes;
  pickle.begin_dict();
  pickle.item("device", int64_t{0});
  pickle.item("address", kBase);
  pickle.item("total_size", bytes);
  pickle.item("allocated_size", in_use);
  pickle.item("active_size", in_use);
  pickle.item("stream", int64_t{0});
  pickle.item("segment_type", "large");
  pickle.text("blocks");
  pickle.begin_list();
  int64_t end = kBase;
  for (const Placed& placed : live) {
    if (placed.address > end) add_block(pickle, end, placed.address - end, nullptr);
    add_block(pickle, placed.address, placed.of->bytes, placed.of);
    end = placed.address + placed.of->bytes;
  }
  if (kBase + bytes > end) add_block(pickle, end, kBase + bytes - end, nullptr);
  pickle.end_list();
  pickle.end_dict();
}

}  // namespace

std::string memory_snapshot(const MemoryLedger& ledger) {
  const std::vector<MemoryLedger::Allocation> all = ledger.allocations();
  std::multimap<int64_t, Placed> ends;
  Addresses addresses;
  Pickle pickle;
  pickle.begin_dict();
  pickle.text("device_traces");
  pickle.begin_list();
  pickle.begin_list();  // list of the events of device 0
  const auto free_until = [&](int64_t time) {
    while (!ends.empty() && ends.begin()->first < time) {
      const auto [end, placed] = *ends.begin();
      ends.erase(ends.begin());
      addresses.give_back(placed.address - kBase);
      add_entry(pickle, "free_requested", placed, end);
      add_entry(pickle, "free_completed", placed, end);
    }
  };
  for (const MemoryLedger::Allocation& one : all) {
    free_until(one.begin);
    pickle.go_on();
    const Placed placed{&one, kBase + addresses.take(one.bytes)};
    add_entry(pickle, "alloc", placed, one.begin);
    ends.emplace(one.end, placed);
  }
  free_until(ledger.times());
  pickle.end_list();
  pickle.end_list();
  pickle.text("segments");
  pickle.begin_list();
  std::vector<Placed> live;
  for (const auto& [end, placed] : ends) live.push_back(placed);
  std::sort(live.begin(), live.end(),
            [](const Placed& a, const Placed& b) { return a.address < b.address; });
  add_segment(pickle, live, addresses.end());
  pickle.end_list();
  pickle.end_dict();
  return pickle.take();
}

}  // namespace shale::models
