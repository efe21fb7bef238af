#include "shale/models/training/report/memory_ledger.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace shale::models {

MemoryLedger::MemoryLedger(Context& context) : context_(context) {
  context_.allocator().set_observer(this);
}

MemoryLedger::~MemoryLedger() {
  context_.allocator().set_observer(nullptr);
}

MemoryLedger::Name MemoryLedger::name(std::string text) {
  const auto [found, is_new] = numbers_.try_emplace(text, static_cast<Name>(names_.size()));
  if (is_new) names_.push_back(std::move(text));
  return found->second;
}

void MemoryLedger::allocated(const void* block, int64_t bytes, MemoryTag tag,
                             std::string_view what) {
  events_.push_back({block, bytes, tag, place_, name(std::string(what))});
  live_[block] = bytes;
  total_ += bytes;
  if (total_ <= highest_) return;
  highest_ = total_;
  until_peak_ = events_.size();
}

// Records the free. Ignores blocks that were allocated before the ledger existed.
void MemoryLedger::freed(const void* block) {
  const auto found = live_.find(block);
  if (found == live_.end()) return;
  total_ -= found->second;
  live_.erase(found);
  events_.push_back({block, 0, MemoryTag(), 0, 0});
}

std::vector<MemoryLedger::Share> MemoryLedger::at_peak() const {
  std::map<const void*, const Event*> live;
  for (size_t i = 0; i < until_peak_; ++i) {
    const Event& event = events_[i];
    if (event.bytes > 0) {
      live[event.block] = &event;
    } else {
      live.erase(event.block);
    }
  }
  std::map<std::tuple<MemoryTag, Name, Name>, Share> shares;
  for (const auto& [block, event] : live) {
    Share& share = shares[{event->tag, event->place, event->what}];
    share = {.tag = event->tag,
             .place = names_[event->place],
             .what = names_[event->what],
             .bytes = share.bytes + event->bytes,
             .blocks = share.blocks + 1};
  }
  std::vector<Share> list;
  for (auto& [key, share] : shares) list.push_back(std::move(share));
  std::stable_sort(list.begin(), list.end(),
                   [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  return list;
}

std::vector<MemoryLedger::Allocation> MemoryLedger::allocations() const {
  std::vector<Allocation> list;
  std::map<const void*, size_t> live;
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    const auto time = static_cast<int64_t>(i);
    if (event.bytes == 0) {
      list[live.at(event.block)].end = time;
      live.erase(event.block);
      continue;
    }
    live[event.block] = list.size();
    list.push_back({.begin = time,
                    .end = times(),
                    .bytes = event.bytes,
                    .tag = event.tag,
                    .place = names_[event.place],
                    .what = names_[event.what]});
  }
  return list;
}

ModulePlaces::ModulePlaces(MemoryLedger& ledger, Module& model, const std::vector<Module*>& units)
    : ledger_(ledger) {
  hook_forward(model);
  for (Module* unit : units) hook_backward(*unit);
}

ModulePlaces::~ModulePlaces() {
  for (const Hooked& at : hooks_) at.module->remove_hook(at.point, at.id);
}

void ModulePlaces::leave_all() {
  inside_.clear();
  show();
}

void ModulePlaces::show() {
  ledger_.set_place(inside_.empty() ? std::string() : *inside_.back());
}

void ModulePlaces::add(Module& module, HookPoint point, Module::Hook hook) {
  hooks_.push_back({&module, point, module.add_hook(point, std::move(hook))});
}

void ModulePlaces::hook_forward(Module& module) {
  for (Module* child : module.children()) hook_forward(*child);
  if (!module.runs() || module.parent() == nullptr) return;
  names_.push_back(std::make_unique<std::string>(module.full_name()));
  add(module, HookPoint::kBeforeForward, [this, name = names_.back().get()] {
    inside_.push_back(name);
    show();
  });
  add(module, HookPoint::kAfterForward, [this] {
    if (!inside_.empty()) inside_.pop_back();
    show();
  });
}

// Shows the unit's name from the start of its backward until its end or until another unit's
// backward starts, because not every unit signals the end. Backward passes of units are not nested.
void ModulePlaces::hook_backward(Module& unit) {
  names_.push_back(std::make_unique<std::string>(unit.full_name()));
  add(unit, HookPoint::kBeforeBackward, [this, name = names_.back().get()] {
    inside_ = {name};
    show();
  });
  add(unit, HookPoint::kAfterBackward, [this] { leave_all(); });
}

}  // namespace shale::models
