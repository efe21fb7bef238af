#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "shale/kernels/simt/engine/options.h"

namespace shale::emulator {

struct Fiber;

// The generator splitmix64: small, fast, and with the same numbers on every platform.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return static_cast<size_t>((next() >> 32) * n >> 32); }

 private:
  uint64_t state_;
};

// The threads of a block that can run, at most 1024, in the order of Options::order.
class RunQueue {
 public:
  void reset(Order order, uint64_t seed) {
    order_ = order;
    random_ = SeededRandom(seed);
    first_ = size_ = 0;
  }
  bool empty() const { return size_ == 0; }
  void push(Fiber* fiber) { at(size_++) = fiber; }
  // Adds a polling thread, which runs after all threads in the queue whatever the order.
  void push_last(Fiber* fiber) {
    if (order_ != Order::kLifo) return push(fiber);
    first_ = (first_ + kCapacity - 1) % kCapacity;
    ++size_;
    at(0) = fiber;
  }
  // Removes and returns the thread that runs next. The queue must not be empty.
  Fiber* pop() {
    if (order_ == Order::kLifo) return at(--size_);
    if (order_ == Order::kRandom) std::swap(at(0), at(random_.below(size_)));
    Fiber* fiber = at(0);
    first_ = (first_ + 1) % kCapacity;
    --size_;
    return fiber;
  }

 private:
  static constexpr size_t kCapacity = 1024;
  Fiber*& at(size_t i) { return ring_[(first_ + i) % kCapacity]; }

  std::array<Fiber*, kCapacity> ring_{};
  size_t first_ = 0, size_ = 0;
  Order order_ = Order::kFifo;
  SeededRandom random_;
};

}  // namespace shale::emulator
