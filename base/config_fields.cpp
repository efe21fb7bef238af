#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "shale/base/config_internal.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale {
namespace {

std::string join(const std::vector<std::string>& names, std::string_view separator) {
  std::string joined;
  for (const std::string& name : names) {
    if (!joined.empty()) joined += separator;
    joined += name;
  }
  return joined;
}

template <typename T>
class IntField : public ConfigField {
 public:
  IntField(std::string field_name, T& field, std::string field_help, IntLimits limits)
      : ConfigField(std::move(field_name), std::move(field_help), limits.help),
        field_(field),
        min_(std::max(limits.min, int64_t{std::numeric_limits<T>::min()})),
        max_(std::min(limits.max, int64_t{std::numeric_limits<T>::max()})) {}

  bool assign_text(std::string_view value) override { return assign(parse_int(value)); }

  bool assign_json(const JsonValue& json) override {
    const auto* value = std::get_if<int64_t>(&json.value);
    return value != nullptr && assign(*value);
  }

  std::string to_json() const override { return std::to_string(field_); }
  std::string value_text() const override { return std::to_string(field_); }
  std::string default_metavar() const override { return "N"; }

  std::string range_text() const override {
    return has_min() && has_max() ? cat(min_, " to ", max_) : "";
  }

  std::string expected() const override {
    if (!has_min() && !has_max()) return cat("an integer of ", 8 * sizeof(T), " bits");
    // The upper limit of a 32-bit integer is worth printing, because 3e9 is a plausible input.
    if (!has_max() && sizeof(T) == 8) return cat("an integer of at least ", min_);
    return cat("an integer from ", min_, " to ", max_);
  }

 protected:
  bool in_limits() const override { return accepts(field_); }

  bool accepts(std::optional<int64_t> value) const {
    return value && *value >= min_ && *value <= max_;
  }
  bool assign(std::optional<int64_t> value) {
    if (!accepts(value)) return false;
    field_ = static_cast<T>(*value);
    return true;
  }
  bool has_min() const { return min_ != std::numeric_limits<T>::min(); }
  bool has_max() const { return max_ != std::numeric_limits<T>::max(); }

  T& field_;
  const int64_t min_;
  const int64_t max_;
};

std::string bytes_text(int64_t bytes) {
  // Uses the largest unit that is exact, so that the printed text can be typed back.
  for (const auto& [shift, unit] : {std::pair{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}) {
    if (bytes != 0 && bytes % (int64_t{1} << shift) == 0) return cat(bytes >> shift, unit);
  }
  if (bytes != 0 && bytes % 1'000'000'000 == 0) return cat(bytes / 1'000'000'000, "e9");
  return std::to_string(bytes);
}

class SizeField : public IntField<int64_t> {
 public:
  using IntField::IntField;
  bool assign_text(std::string_view value) override { return assign(parse_size(value)); }

  bool assign_json(const JsonValue& json) override {
    const auto* value = std::get_if<std::string>(&json.value);
    return value != nullptr ? assign_text(*value) : IntField::assign_json(json);
  }

  std::string value_text() const override { return bytes_text(field_); }
  std::string default_metavar() const override { return "SIZE"; }

  std::string range_text() const override {
    return has_max() ? cat(bytes_text(min_), " to ", bytes_text(max_)) : "";
  }

  std::string expected() const override {
    const std::string range = has_max()  ? cat(" from ", bytes_text(min_), " to ", bytes_text(max_))
                              : min_ > 0 ? cat(" of at least ", bytes_text(min_))
                                         : "";
    return cat("a size", range, ", such as 512MiB, 2GiB or 1e6");
  }
};

template <typename T>
class RealField : public ConfigField {
 public:
  RealField(std::string field_name, T& field, std::string field_help, const RealLimits& limits)
      : ConfigField(std::move(field_name), std::move(field_help), limits.help),
        field_(field),
        limits_(limits) {}

  bool assign_text(std::string_view value) override {
    if (!limits_.may_be_auto || value != "auto") return assign(parse_real(value));
    field_ = kAuto;
    return true;
  }

  bool assign_json(const JsonValue& json) override {
    const auto* const word = std::get_if<std::string>(&json.value);
    if (word != nullptr) return *word == "auto" && assign_text(*word);
    if (const auto* value = std::get_if<double>(&json.value)) return assign(*value);
    const auto* value = std::get_if<int64_t>(&json.value);
    return value != nullptr && assign(static_cast<double>(*value));
  }

  std::string to_json() const override { return is_auto() ? "\"auto\"" : format_real(field_); }
  std::string value_text() const override { return is_auto() ? "auto" : format_real(field_); }
  std::string default_metavar() const override { return limits_.may_be_auto ? "X|auto" : "X"; }

  std::string range_text() const override {
    if (!std::isfinite(limits_.min) || !std::isfinite(limits_.max)) return "";
    return cat(limits_.exclude_min ? "above " : "", limits_.min,
               limits_.exclude_max ? " to less than " : " to ", limits_.max);
  }

  std::string expected() const override {
    return cat(limits_.may_be_auto ? "auto, or " : "", expected_number());
  }

 private:
  static constexpr T kAuto = -1;
  bool is_auto() const { return limits_.may_be_auto && field_ == kAuto; }

  std::string expected_number() const {
    const bool has_min = std::isfinite(limits_.min);
    const bool has_max = std::isfinite(limits_.max);
    if (has_min && has_max) {
      return cat("a number in ", limits_.exclude_min ? "(" : "[", limits_.min, ", ", limits_.max,
                 limits_.exclude_max ? ")" : "]");
    }
    if (has_min)
      return cat("a number ", limits_.exclude_min ? "above " : "of at least ", limits_.min);
    if (has_max)
      return cat("a number ", limits_.exclude_max ? "below " : "of at most ", limits_.max);
    return std::is_same_v<T, float> ? "a finite number that fp32 can hold" : "a finite number";
  }

  bool in_limits() const override {
    if (is_auto()) return true;
    // As a double, the float 0.1f is above a limit of 0.1, so the printed value is checked as well.
    return accepts(field_) || accepts(parse_real(format_real(field_)));
  }

  bool accepts(std::optional<double> value) const {
    if (!value || !(*value >= limits_.min && *value <= limits_.max)) return false;
    if (limits_.exclude_min && *value == limits_.min) return false;
    if (limits_.exclude_max && *value == limits_.max) return false;
    const T narrow = static_cast<T>(*value);
    return std::isfinite(narrow) && (narrow != 0 || *value == 0);  // T can represent the value
  }
  bool assign(std::optional<double> value) {
    if (!accepts(value)) return false;
    field_ = static_cast<T>(*value) + T{0};  // JSON's integer -0 becomes +0
    return true;
  }

  T& field_;
  const RealLimits limits_;
};

class BoolField : public ConfigField {
 public:
  BoolField(std::string field_name, bool& field, std::string field_help)
      : ConfigField(std::move(field_name), std::move(field_help), {}), field_(field) {}

  bool assign_text(std::string_view value) override {
    if (value != "true" && value != "false") return false;
    field_ = value == "true";
    return true;
  }

  bool assign_json(const JsonValue& json) override {
    const bool* value = std::get_if<bool>(&json.value);
    if (value != nullptr) field_ = *value;
    return value != nullptr;
  }

  std::string to_json() const override { return to_string(field_); }
  std::string value_text() const override { return field_ ? "true" : ""; }
  std::string default_metavar() const override { return ""; }
  std::string expected() const override { return "true or false"; }
  bool is_bool() const override { return true; }

 private:
  bool& field_;
};

class TextField : public ConfigField {
 public:
  TextField(std::string field_name, std::string& field, std::string field_help,
            const TextLimits& limits)
      : ConfigField(std::move(field_name), std::move(field_help), limits.help),
        field_(field),
        is_path_(limits.is_path) {
    required = limits.required;
  }

  bool assign_text(std::string_view value) override {
    if (is_path_ && !names_a_path(value)) return false;
    field_ = value;
    return true;
  }

  bool assign_json(const JsonValue& json) override {
    const auto* value = std::get_if<std::string>(&json.value);
    // The operating system would end a path at its first NUL.
    if (value == nullptr || value->find('\0') != value->npos) return false;
    // --print-config writes an empty string for a field without a value, so this string must be
    // valid.
    if (value->empty() && default_value.empty()) return true;
    return assign_text(*value);
  }

  std::string to_json() const override { return json_quote(field_); }
  std::string value_text() const override { return field_; }
  std::string default_metavar() const override { return "TEXT"; }
  std::string offered() const override { return is_path_ ? "FILE" : ""; }
  std::string expected() const override {
    return is_path_ ? "a path: not empty, and without control characters" : "text";
  }

 private:
  std::string& field_;
  const bool is_path_;
};

class ChoiceField : public ConfigField {
 public:
  ChoiceField(std::string field_name, std::vector<std::string> names, size_t initial,
              std::function<void(size_t)> assign, std::string field_help, HelpText help_text)
      : ConfigField(std::move(field_name), std::move(field_help), std::move(help_text)),
        names_(std::move(names)),
        chosen_(initial),
        assign_(std::move(assign)) {}

  bool assign_text(std::string_view value) override {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] != value) continue;
      chosen_ = i;
      assign_(i);
      return true;
    }
    return false;
  }

  bool assign_json(const JsonValue& json) override {
    const auto* value = std::get_if<std::string>(&json.value);
    return value != nullptr && assign_text(*value);
  }

  bool in_limits() const override { return chosen_ < names_.size(); }
  std::string to_json() const override { return json_quote(names_[chosen_]); }
  std::string value_text() const override { return in_limits() ? names_[chosen_] : ""; }
  std::string expected() const override { return cat("one of ", join(names_, ", ")); }
  std::string offered() const override { return join(names_, " "); }

  // A long list of choices is left to the help text, where it is wrapped.
  std::string default_metavar() const override { return names_fit() ? join(names_, "|") : "NAME"; }
  std::string range_text() const override { return names_fit() ? "" : join(names_, ", "); }

 private:
  bool names_fit() const { return join(names_, "|").size() <= 28; }

  const std::vector<std::string> names_;
  size_t chosen_;
  const std::function<void(size_t)> assign_;
};

}  // namespace

FieldPtr make_int_field(std::string name, int& field, std::string help, IntLimits limits) {
  return std::make_unique<IntField<int>>(std::move(name), field, std::move(help), limits);
}
FieldPtr make_int_field(std::string name, int64_t& field, std::string help, IntLimits limits) {
  return std::make_unique<IntField<int64_t>>(std::move(name), field, std::move(help), limits);
}
FieldPtr make_size_field(std::string name, int64_t& field, std::string help, IntLimits limits) {
  limits.min = std::max<int64_t>(limits.min, 0);
  return std::make_unique<SizeField>(std::move(name), field, std::move(help), limits);
}
FieldPtr make_real_field(std::string name, float& field, std::string help, RealLimits limits) {
  return std::make_unique<RealField<float>>(std::move(name), field, std::move(help), limits);
}
FieldPtr make_real_field(std::string name, double& field, std::string help, RealLimits limits) {
  return std::make_unique<RealField<double>>(std::move(name), field, std::move(help), limits);
}
FieldPtr make_bool_field(std::string name, bool& field, std::string help) {
  return std::make_unique<BoolField>(std::move(name), field, std::move(help));
}
FieldPtr make_text_field(std::string name, std::string& field, std::string help,
                         TextLimits limits) {
  return std::make_unique<TextField>(std::move(name), field, std::move(help), limits);
}
FieldPtr make_choice_field(std::string name, std::vector<std::string> names, size_t initial,
                           std::function<void(size_t)> assign, std::string help, HelpText text) {
  return std::make_unique<ChoiceField>(std::move(name), std::move(names), initial,
                                       std::move(assign), std::move(help), std::move(text));
}

}  // namespace shale
