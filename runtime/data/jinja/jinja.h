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

// Limits of one rendering, because templates are untrusted.
struct JinjaLimits {
  // maximum number of evaluated expressions, statements and loop items
  int64_t max_steps = 10'000'000;
  int64_t max_bytes = int64_t{256} << 20;  // maximum bytes of all texts and lists that are created
};

struct JinjaOptions {
  JinjaLimits limits;
  // Local time that strftime_now() formats; default: the current time.
  std::optional<std::time_t> now;
};

struct JinjaText {
  // Bytes [begin, end) of a text.
  struct Range {
    size_t begin = 0, end = 0;
  };

  std::string text;
  // ranges of the text that {% generation %} blocks wrote, in order
  std::vector<Range> generations;
};

// A chat template in the subset of Jinja that published templates use. It has the settings of
// transformers: trim_blocks, lstrip_blocks, loop controls, generation blocks, raise_exception,
// strftime_now, and its tojson. Output equals that of Jinja2 3.1. Unsupported features are errors,
// never ignored. Immutable after construction, so several threads may render concurrently.
class JinjaTemplate {
 public:
  // `source` names the template in errors. Throws DataError, with the line, for syntax errors,
  // unsupported features, and text that is not UTF-8 or exceeds 256 KiB.
  JinjaTemplate(std::string_view text, std::string source);

  // Renders the template. values: an object with the template's variables ("messages", "tools",
  // "bos_token", ...). Throws DataError, with the line, for raise_exception(), for errors such as
  // an attribute of an undefined value, and if a limit is exceeded.
  JinjaText render(const Json& values, const JinjaOptions& options = {}) const;

  // Returns true if the template has generation blocks, which set JinjaText::generations.
  bool marks_generations() const;

 private:
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace shale
