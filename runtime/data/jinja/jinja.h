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
  int64_t max_steps = 10'000'000;          // expressions, statements and visited items
  int64_t max_bytes = int64_t{256} << 20;  // total bytes of all texts and lists that are created
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
  std::vector<Range> generations;  // text written by {% generation %} blocks, in order
};

// A chat template in the subset of Jinja that published templates use, with the settings of
// transformers (trim_blocks, lstrip_blocks, loop controls, generation blocks, raise_exception,
// strftime_now, its tojson). Output is that of Jinja2 3.1. Unsupported features are rejected, never
// ignored. Immutable after construction, so several threads may render concurrently.
class JinjaTemplate {
 public:
  // `source` names the template in errors. Throws DataError, with the line, for syntax errors,
  // unsupported features, and text that is not UTF-8 or exceeds 256 KiB.
  JinjaTemplate(std::string_view text, std::string source);

  // `values`: an object with the template's variables ("messages", "tools", "bos_token", ...).
  // Throws DataError, with the line, for raise_exception(), for errors such as an attribute of an
  // undefined value, and beyond a limit.
  JinjaText render(const Json& values, const JinjaOptions& options = {}) const;

  // Returns true if the template has generation blocks, which set JinjaText::generations.
  bool marks_generations() const;

 private:
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace shale
