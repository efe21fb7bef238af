#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "shale/runtime/data/jinja/jinja.h"
#include "shale/runtime/data/jinja/value.h"

namespace shale::jinja {

// State of one rendering: the current line, the used part of each limit, and the namespaces.
class Run {
 public:
  Run(std::string_view source, const JinjaOptions& options) : source_(source), options_(options) {}

  void at_line(int line) { line_ = line; }
  int line() const { return line_; }
  // Throws DataError with the template's name, the line and the problem.
  [[noreturn]] void fail(std::string_view problem) const;

  // Count steps or bytes before they are used. Throw DataError if that exceeds a limit.
  void spend_steps(int64_t steps);
  void spend_bytes(int64_t bytes);

  // append() appends `text` to `out`; text() makes a value of it. Both count its bytes.
  void append(std::string_view text, std::string& out);
  Value text(std::string_view text);
  // Make values, and check the limits of bytes and of nesting depth.
  Value list(List items, SequenceForm form = SequenceForm::kList);
  Value dict(Dict members);
  Namespace* make_namespace();

  const JinjaOptions& options() const { return options_; }

  // Scope of a nested expression, statement or value. Counts the nesting depth.
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
  // maximum nesting depth, because each level uses the C++ stack
  static constexpr int kMaxDepth = 1000;
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
