#include "shale/bench/support/json_text.h"

#include <cmath>
#include <cstdio>

#include "shale/base/json.h"
#include "shale/base/text.h"

namespace shale::bench {

JsonText& JsonText::add_raw(std::string_view key, std::string_view value) {
  if (!fields_.empty()) fields_ += ", ";
  fields_ += cat(json_quote(key), ": ", value);
  return *this;
}

JsonText& JsonText::add(std::string_view key, std::string_view value) {
  return add_raw(key, json_quote(value));
}
JsonText& JsonText::add(std::string_view key, double value) {
  char digits[32] = "null";
  if (std::isfinite(value)) std::snprintf(digits, sizeof digits, "%.7g", value);
  return add_raw(key, digits);
}
JsonText& JsonText::add(std::string_view key, int64_t value) {
  return add_raw(key, cat(value));
}
JsonText& JsonText::add(std::string_view key, const JsonText& object) {
  return add_raw(key, object.text());
}

JsonText& JsonText::add(std::string_view key, const std::vector<JsonText>& array) {
  std::string lines = "[";
  for (size_t i = 0; i < array.size(); ++i) lines += cat(i > 0 ? ",\n " : "\n ", array[i].text());
  return add_raw(key, lines + "]");
}

}  // namespace shale::bench
