#include "shale/runtime/data/jinja/run.h"

#include <utility>

#include "shale/base/error.h"

namespace shale::jinja {

void Run::fail(std::string_view problem) const {
  throw DataError(cat(source_, ", line ", line_, ": ", problem));
}

void Run::spend_steps(int64_t steps) {
  if (steps > options_.limits.max_steps - steps_) {
    fail(cat("rendering takes more than ", options_.limits.max_steps, " steps"));
  }
  steps_ += steps;
}

void Run::spend_bytes(int64_t bytes) {
  if (bytes > options_.limits.max_bytes - bytes_) {
    const double limit = static_cast<double>(options_.limits.max_bytes);
    fail(cat("rendering makes more than ", format_bytes(limit), " of text and lists"));
  }
  bytes_ += bytes;
}

void Run::append(std::string_view text, std::string& out) {
  spend_bytes(std::ssize(text));
  out += text;
}

Value Run::text(std::string_view text) {
  spend_bytes(std::ssize(text));
  return text;
}

Value Run::list(List items, SequenceForm form) {
  spend_bytes(std::ssize(items) * static_cast<int64_t>(sizeof(Value)));
  return checked(Value(std::move(items), form));
}

Value Run::dict(Dict members) {
  spend_bytes(std::ssize(members) * 2 * static_cast<int64_t>(sizeof(Value)));
  return checked(Value(std::move(members)));
}

Namespace* Run::make_namespace() {
  spend_bytes(static_cast<int64_t>(sizeof(Namespace)));
  return &namespaces_.emplace_back();
}

Value Run::checked(Value value) const {
  if (value.depth() > kMaxValueDepth) {
    fail(cat("lists and dicts are nested deeper than ", kMaxValueDepth, " levels"));
  }
  return value;
}

}  // namespace shale::jinja
