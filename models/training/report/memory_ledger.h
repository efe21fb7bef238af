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

// Every allocation of a context while this lives: when, how long, for what, and in which part of
// the model it was made.
class MemoryLedger final : public AllocationObserver {
 public:
  // The context has no other observer, and outlives this.
  explicit MemoryLedger(Context& context);
  ~MemoryLedger() override;
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Where allocations are made from now on; empty: outside of all places.
  void set_place(std::string place) { place_ = name(std::move(place)); }

  // Bytes that were in use when their sum was highest.
  struct Share {
    MemoryTag tag{};
    std::string place;  // a module's full name, or "" outside of all
    std::string what;   // who asked: a unit's name for its flat buffers
    int64_t bytes = 0;
    int64_t blocks = 0;
  };
  // Those of one tag, place and asker together; the largest first.
  std::vector<Share> at_peak() const;

  // One allocation. Times count what is allocated and freed, from 0.
  struct Allocation {
    int64_t begin = 0;
    int64_t end = 0;  // when it was freed; times(): it was not
    int64_t bytes = 0;
    MemoryTag tag{};
    std::string_view place, what;  // as Share's, up to the ledger's end
  };
  std::vector<Allocation> allocations() const;  // by begin
  int64_t times() const { return static_cast<int64_t>(events_.size()); }
  int64_t peak_time() const { return static_cast<int64_t>(until_peak_) - 1; }  // -1: there is none
  int64_t peak_bytes() const { return highest_; }

  // Notes what begins now, for pictures: "step 1".
  void mark(std::string text) { marks_.emplace_back(times(), std::move(text)); }
  const std::vector<std::pair<int64_t, std::string>>& marks() const { return marks_; }

  void allocated(const void* block, int64_t bytes, MemoryTag tag, std::string_view what) override;
  void freed(const void* block) override;

 private:
  using Name = uint32_t;
  Name name(std::string text);

  struct Event {
    const void* block;
    int64_t bytes;  // 0: it is freed
    MemoryTag tag;
    Name place, what;
  };
  Context& context_;
  std::vector<std::string> names_ = {""};
  std::map<std::string, Name> numbers_ = {{"", 0}};
  Name place_ = 0;
  std::vector<Event> events_;
  std::map<const void*, int64_t> live_;  // bytes
  int64_t total_ = 0, highest_ = 0;
  std::vector<std::pair<int64_t, std::string>> marks_;
  size_t until_peak_ = 0;  // events, that of the highest total included
};

// Tells a ledger in which module the model is: in forward the innermost, in backward the unit.
class ModulePlaces {
 public:
  // All outlive this; `units` are modules of the model.
  ModulePlaces(MemoryLedger& ledger, Module& model, const std::vector<Module*>& units);
  ~ModulePlaces();
  ModulePlaces(const ModulePlaces&) = delete;
  ModulePlaces& operator=(const ModulePlaces&) = delete;

  // The model's forward and backward are over: not every backward of a unit shows its end.
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
