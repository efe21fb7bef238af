#include <algorithm>
#include <cmath>
#include <utility>

#include "shale/base/json.h"
#include "shale/base/text.h"
#include "shale/runtime/data/jinja/operations.h"
#include "shale/runtime/data/jinja/python_text.h"

namespace shale::jinja {
namespace {

// Writes the output of json.dumps().
class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void write(const Value& value) {
    const Run::Nested nested(run_);
    run_.spend_steps(1);
    if (value.text() != nullptr) return write_text(*value.text());
    if (value.is<None>()) return run_.append("null", out_);
    if (value.is<bool>()) return run_.append(value.is_true() ? "true" : "false", out_);
    if (value.is_integer()) return run_.append(std::to_string(value.integer()), out_);
    if (value.is_number()) return write_real(value.real());
    if (is_list(value)) {
      write_all('[', *value.as<Sequence>()->items, ']', [this](const Value& one) { write(one); });
    } else if (value.members() != nullptr) {
      write_dict(*value.members());
    } else {
      run_.fail(cat("tojson does not take a value of type ", value.type()));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void write_text(std::string_view text) {
    run_.append(style_.ensure_ascii ? ascii_json(text) : json_quote(text), out_);
  }
  void write_real(double value) {
    const std::string text = repr(value);
    run_.append(std::isnan(value)   ? "NaN"
                : std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity")
                                    : std::string_view(text),
                out_);
  }
  void write_key(const Value& key) {
    if (key.text() != nullptr) return write(key);
    out_ += '"';
    write(key);
    out_ += '"';
  }
  void write_dict(const Dict& members) {
    Dict sorted;
    if (style_.sort_keys) {
      run_.spend_steps(std::ssize(members));
      sorted = members;
      std::ranges::stable_sort(sorted, [this](const auto& a, const auto& b) {
        return compare(run_, Operator::kLess, a.first, b.first);
      });
    }
    write_all('{', style_.sort_keys ? sorted : members, '}', [this](const auto& member) {
      write_key(member.first);
      run_.append(style_.key_separator, out_);
      write(member.second);
    });
  }
  template <typename Items, typename Write>
  void write_all(char open, const Items& items, char close, const Write& write_one) {
    out_ += open;
    ++level_;
    for (const auto& one : items) {
      if (&one != &*items.begin()) run_.append(style_.item_separator, out_);
      break_line();
      write_one(one);
    }
    --level_;
    if (!items.empty()) break_line();
    out_ += close;
  }
  void break_line() {
    if (!style_.breaks_lines) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) run_.append(style_.indent, out_);
  }

  Run& run_;
  const JsonStyle& style_;
  int level_ = 0;
  std::string out_;
};

}  // namespace

std::string to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value);
  return writer.take();
}

}  // namespace shale::jinja
