#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Records every allocation of a context while this object exists: time, lifetime, tag, and the part
// of the model that made it.
class MemoryLedger final : public AllocationObserver {
 public:
  // The context must have no other observer, and must outlive this.
  explicit MemoryLedger(Context& context);
  ~MemoryLedger() override;
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Sets the place, i.e. the module, of the following allocations; empty: outside of all modules.
  void set_place(std::string place) { place_ = name(std::move(place)); }

  // Bytes in use at the peak with the same tag, module and requester.
  struct Share {
    MemoryTag tag{};
    std::string place;  // full name of a module; "" outside of all modules
    std::string what;   // requester; for flat buffers, the name of their unit
    int64_t bytes = 0;
    int64_t blocks = 0;
  };
  // Returns one entry for each combination of tag, place and requester; the largest first.
  std::vector<Share> at_peak() const;

  // One allocation. Times are indices of allocations and frees, from 0.
  struct Allocation {
    int64_t begin = 0;
    int64_t end = 0;  // time at which it was freed; times() if it was not freed
    int64_t bytes = 0;
    MemoryTag tag{};
    std::string_view place, what;  // see Share; valid as long as the ledger exists
  };
  std::vector<Allocation> allocations() const;  // sorted by begin
  int64_t times() const { return static_cast<int64_t>(events_.size()); }
  int64_t peak_time() const { return static_cast<int64_t>(until_peak_) - 1; }  // -1: no allocations
  int64_t peak_bytes() const { return highest_; }

  // Adds a mark, such as "step 1", at the current time to pictures.
  void mark(std::string text) { marks_.emplace_back(times(), std::move(text)); }
  const std::vector<std::pair<int64_t, std::string>>& marks() const { return marks_; }

  void allocated(const void* block, int64_t bytes, MemoryTag tag, std::string_view what) override;
  void freed(const void* block) override;

 private:
  using Name = uint32_t;
  Name name(std::string text);

  struct Event {
    const void* block;
    int64_t bytes;  // 0 for a free
    MemoryTag tag;
    Name place, what;
  };
  Context& context_;
  std::vector<std::string> names_ = {""};
  std::map<std::string, Name> numbers_ = {{"", 0}};
  Name place_ = 0;
  std::vector<Event> events_;
  std::map<const void*, int64_t> live_;  // bytes of each block in use
  int64_t total_ = 0, highest_ = 0;
  std::vector<std::pair<int64_t, std::string>> marks_;
  size_t until_peak_ = 0;  // number of events up to the peak, with the event that reaches it
};

// Tells a ledger which module is running: in forward the innermost one, in backward the unit.
class ModulePlaces {
 public:
  // All arguments must outlive this; `units` are modules of the model.
  ModulePlaces(MemoryLedger& ledger, Module& model, const std::vector<Module*>& units);
  ~ModulePlaces();
  ModulePlaces(const ModulePlaces&) = delete;
  ModulePlaces& operator=(const ModulePlaces&) = delete;

  // Call it after forward and backward: not every backward of a unit signals its end.
  void leave_all();

 private:
  struct Hooked {
    Module* module;
    HookPoint point;
    uint64_t id;
  };
  void add(Module& module, HookPoint point, Module::Hook hook);
  void hook_forward(Module& module);
  void hook_backward(Module& unit);
  void show();

  MemoryLedger& ledger_;
  std::vector<const std::string*> inside_;  // modules, the innermost last
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<Hooked> hooks_;
};

}  // namespace shale::models
