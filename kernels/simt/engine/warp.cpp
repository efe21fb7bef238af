#include "shale/kernels/simt/engine/warp.h"

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

std::string hex(uint32_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[(value >> shift) & 15];
  return text;
}

template <typename Fn>
void for_lanes(uint32_t mask, Fn&& fn) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) fn(__builtin_ctz(rest));
}

}  // namespace

void WarpCollectives::join(Fiber& self, uint32_t mask, const WarpOperation& operation,
                           void* payload) {
  Pending& pending = find(self, mask, operation);
  pending.arrived |= 1u << self.lane;
  pending.lanes[self.lane] = &self;
  pending.payloads[self.lane] = payload;
  if (pending.arrived != mask) return self.block->wait(self);
  complete(self, static_cast<size_t>(&pending - pending_.data()));
}

WarpCollectives::Pending& WarpCollectives::find(Fiber& self, uint32_t mask,
                                                const WarpOperation& operation) {
  Block& block = *self.block;
  if ((mask >> self.lane & 1) == 0) {
    block.fail(Fault::kDivergentCollective,
               cat(operation.name, ": lane ", self.lane, " passes the mask ", hex(mask),
                   ", which does not contain the lane"));
  }
  if ((mask & gone_) != 0) {
    block.fail(Fault::kDivergentCollective,
               cat(operation.name, ": mask ", hex(mask),
                   " names lanes that have ended: ", hex(mask & gone_)));
  }
  for (Pending& pending : pending_) {
    if (pending.mask != mask) continue;
    if (pending.operation == &operation) return pending;
    const Fiber& other = *pending.lanes[__builtin_ctz(pending.arrived)];
    block.fail(Fault::kDivergentCollective,
               cat("lanes of mask ", hex(mask), " are at different operations: lane ", self.lane,
                   " at ", operation.name, " (", self.site, "), lane ", other.lane, " at ",
                   pending.operation->name, " (", other.site, ")"));
  }
  pending_.push_back({.mask = mask, .operation = &operation});
  return pending_.back();
}

void WarpCollectives::complete(Fiber& self, size_t index) {
  // Removes the operation from the list first, because the woken lanes may start another one.
  const Pending done = pending_[index];
  pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(index));
  if (done.operation->combine != nullptr) {
    done.operation->combine(*self.block, done.mask, done.payloads);
  }
  if (done.operation->orders_memory) self.block->tracker().join_lanes(self.warp, done.mask);
  for_lanes(done.mask, [&](int lane) {
    if (done.lanes[lane] != &self) self.block->wake(*done.lanes[lane]);
  });
}

void WarpCollectives::leave(Fiber& self) {
  gone_ |= 1u << self.lane;
  for (const Pending& pending : pending_) {
    if ((pending.mask & gone_) == 0) continue;
    const Fiber& waiting = *pending.lanes[__builtin_ctz(pending.arrived)];
    self.block->fail(
        Fault::kDivergentCollective,
        cat("this thread ends while lane ", waiting.lane, " of its warp waits for it at ",
            pending.operation->name, " (", waiting.site, ") with mask ", hex(pending.mask)));
  }
}

void warp_collective(uint32_t mask, const WarpOperation& operation, void* payload, Site site) {
  Fiber& self = enter(operation.name, site);
  self.block->warp(self.warp).join(self, mask, operation, payload);
}

// ---- Operations ----

void sync_warp(uint32_t mask, Site site) {
  static constexpr WarpOperation kOperation = {"__syncwarp", nullptr, true};
  warp_collective(mask, kOperation, nullptr, site);
}

namespace {

struct Shuffle {
  uint64_t bits, result;
  int source;
};

void combine_shuffle(Block& block, uint32_t mask, void* const* payloads) {
  for_lanes(mask, [&](int lane) {
    auto& own = *static_cast<Shuffle*>(payloads[lane]);
    const int source = own.source < 0 || own.source >= kWarp ? lane : own.source;
    if ((mask >> source & 1) == 0) {
      block.fail(Fault::kDivergentCollective, cat("shuffle: lane ", lane, " reads lane ", source,
                                                  ", which is not in mask ", hex(mask)));
    }
    own.result = static_cast<const Shuffle*>(payloads[source])->bits;
  });
}

struct Vote {
  bool predicate;
  uint32_t result;
};

void combine_ballot(Block&, uint32_t mask, void* const* payloads) {
  uint32_t result = 0;
  for_lanes(mask, [&](int lane) {
    if (static_cast<const Vote*>(payloads[lane])->predicate) result |= 1u << lane;
  });
  for_lanes(mask, [&](int lane) { static_cast<Vote*>(payloads[lane])->result = result; });
}

}  // namespace

uint64_t shuffle(uint32_t mask, uint64_t bits, int source, Site site) {
  static constexpr WarpOperation kOperation = {"a warp shuffle", combine_shuffle};
  Shuffle payload = {bits, 0, source};
  warp_collective(mask, kOperation, &payload, site);
  return payload.result;
}

void check_uniform(int own, int of_lane_0, Site site) {
  Fiber& self = enter("uniform", site);
  if (own == of_lane_0) return;
  self.block->fail(Fault::kDivergentCollective,
                   cat("uniform: the value is ", own, " here and ", of_lane_0,
                       " in lane 0, expected one value in all lanes"));
}

uint32_t ballot(uint32_t mask, bool predicate, Site site) {
  static constexpr WarpOperation kOperation = {"a warp vote", combine_ballot};
  Vote payload = {predicate, 0};
  warp_collective(mask, kOperation, &payload, site);
  return payload.result;
}

}  // namespace shale::emulator
