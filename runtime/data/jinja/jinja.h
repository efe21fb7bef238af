#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/json.h"

namespace shale {
namespace jinja {
struct Program;
}

// Bounds of one rendering, which a template from outside cannot exceed.
struct JinjaLimits {
  int64_t max_steps = 10'000'000;          // expressions, statements, items visited
  int64_t max_bytes = int64_t{256} << 20;  // of all texts and lists made on the way
};

struct JinjaOptions {
  JinjaLimits limits;
  std::optional<std::time_t> now;  // what strftime_now() shows, in local time; default: the clock
};

struct JinjaText {
  // Bytes [begin, end) of the text.
  struct Range {
    size_t begin = 0, end = 0;
  };

  std::string text;
  std::vector<Range> generations;  // what {% generation %} blocks wrote, in order
};

// A chat template: the subset of Jinja that published ones use, with the settings of transformers
// (trim_blocks, lstrip_blocks, loop controls, generation blocks, raise_exception, strftime_now, its
// tojson). Texts are those of Jinja2 3.1. What is not supported is refused, never left out.
// Immutable after construction: several threads may render at the same time.
class JinjaTemplate {
 public:
  // `source` names the template in errors. Throws DataError with the line for a syntax error, for
  // what is not supported, and for text that is not UTF-8 or larger than 256 KiB.
  JinjaTemplate(std::string_view text, std::string source);

  // `values`: an object with the template's variables ("messages", "tools", "bos_token", ...).
  // Throws DataError with the line for what raise_exception() says, for a mistake (an undefined
  // value's attribute, say) and beyond a limit.
  JinjaText render(const Json& values, const JinjaOptions& options = {}) const;

  // Has generation blocks, so that ranges say what the assistant wrote.
  bool marks_generations() const;

 private:
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace shale
