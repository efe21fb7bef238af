#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "shale/runtime/data/jinja/jinja.h"
#include "shale/runtime/data/jinja/value.h"

namespace shale::jinja {

// One rendering: where it is, what it has used of its limits, and the namespaces that it made.
class Run {
 public:
  Run(std::string_view source, const JinjaOptions& options) : source_(source), options_(options) {}

  void at_line(int line) { line_ = line; }
  int line() const { return line_; }
  // Throws DataError: source, line, problem.
  [[noreturn]] void fail(std::string_view problem) const;

  // To be called before time or memory is used. Both throw DataError beyond the limit.
  void spend_steps(int64_t steps);
  void spend_bytes(int64_t bytes);

  // `text` behind `out`, and a copy of it, within the limit of bytes.
  void append(std::string_view text, std::string& out);
  Value text(std::string_view text);
  // Within the limits of bytes and of values inside each other.
  Value list(List items, SequenceForm form = SequenceForm::kList);
  Value dict(Dict members);
  Namespace* make_namespace();

  const JinjaOptions& options() const { return options_; }

  // Enters an expression, a statement or a value inside another one; leaves it in the destructor.
  class Nested {
   public:
    explicit Nested(Run& run) : run_(run) {
      if (++run.depth_ > kMaxDepth) run.fail("the template is nested or calls itself too deeply");
    }
    ~Nested() { --run_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Run& run_;
  };

 private:
  static constexpr int kMaxDepth = 1000;  // of what uses the stack
  static constexpr int kMaxValueDepth = 200;
  Value checked(Value value) const;

  std::string_view source_;
  const JinjaOptions& options_;
  int line_ = 1;
  int depth_ = 0;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  std::deque<Namespace> namespaces_;
};

}  // namespace shale::jinja
