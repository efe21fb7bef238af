#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "shale/runtime/data/jinja/jinja.h"
#include "shale/runtime/data/jinja/value.h"

namespace shale::jinja {

// State of one rendering: the current line, the used part of the limits, and its namespaces.
class Run {
 public:
  Run(std::string_view source, const JinjaOptions& options) : source_(source), options_(options) {}

  void at_line(int line) { line_ = line; }
  int line() const { return line_; }
  // Throws DataError with source, line and problem.
  [[noreturn]] void fail(std::string_view problem) const;

  // Call before using time or memory. Both throw DataError beyond the limit.
  void spend_steps(int64_t steps);
  void spend_bytes(int64_t bytes);

  // Append `text` to `out`, or copy it, within the byte limit.
  void append(std::string_view text, std::string& out);
  Value text(std::string_view text);
  // Make values within the limits of bytes and of nesting depth.
  Value list(List items, SequenceForm form = SequenceForm::kList);
  Value dict(Dict members);
  Namespace* make_namespace();

  const JinjaOptions& options() const { return options_; }

  // Enters a nested expression, statement or value; the destructor leaves it.
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
  static constexpr int kMaxDepth = 1000;  // nesting that uses the C++ stack
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
