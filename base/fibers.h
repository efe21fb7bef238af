#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shale {

// Functions that run in turn on one thread, each on its own stack. One of them runs until it parks
// or ends. Then the next one that can continue runs, in the order of their numbers. The order
// depends only on where they park, so it is the same in every process that runs the same functions.
//
// Each fiber has its own exception state: it may park in a catch block, or in a destructor that
// runs during stack unwinding.
class Fibers {
 public:
  explicit Fibers(int count);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  int count() const;
  // Number of the running function; -1 outside of run().
  int current() const;

  // Calls body(0), body(1), ..., and returns when all have ended. Calls swap(i) each time before
  // body(i) runs and after it parks or ends; swap may exchange the caller's state with the state of
  // i. If bodies throw, rethrows the first exception; park() throws in the other bodies, which
  // unwinds them. Must not be called from a body.
  using Body = std::function<void(int)>;
  void run(const Body& body, const Body& swap = nullptr);

  // Called by a body: lets other bodies run until is_open() is true. `what` describes what the body
  // waits for. Throws CommError if another body has thrown, or if all bodies wait; then the message
  // says which body waits for what.
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
