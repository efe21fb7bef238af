#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shale {

// Several functions that take turns on one thread, each on a stack of its own. One runs until it
// parks or ends; then the next one that can go on does, in the order of their numbers. Who runs
// when depends on nothing but where they park, so that every process that runs the same functions
// has the same order.
//
// Each has exception state of its own: it may park in a catch block, or in a destructor that runs
// while an exception unwinds.
class Fibers {
 public:
  explicit Fibers(int count);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  int count() const;
  // The number of the function that runs; -1 outside of run().
  int current() const;

  // Calls body(0), body(1), ..., and returns when all have. Around every turn of body(i) it calls
  // swap(i), before and after, which may exchange the caller's state with that of i. Throws what
  // the first of them threw that did; the others are unwound, by an exception out of park(). Not
  // from a body.
  using Body = std::function<void(int)>;
  void run(const Body& body, const Body& swap = nullptr);

  // Inside a body: others run until is_open(). `what` says what it waits for. Throws CommError if
  // another body has thrown, or if all wait, naming who waits for what.
  void park(std::string_view what, const std::function<bool()>& is_open);

 private:
  struct Fiber;
  struct Run;

  static void main();
  Fiber* next();
  void enter(Fiber& fiber);
  std::string waiting() const;

  std::unique_ptr<Run> run_;
};

}  // namespace shale
