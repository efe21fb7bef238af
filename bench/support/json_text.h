#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::bench {

// Writes a JSON object, with fields in the order in which they are added. bench_kernels uses it,
// because that program is also built without the JSON library.
class JsonText {
 public:
  JsonText& add(std::string_view key, std::string_view value);
  JsonText& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonText& add(std::string_view key, double value);  // with seven digits; null if not finite
  JsonText& add(std::string_view key, int64_t value);
  JsonText& add(std::string_view key, int value) { return add(key, int64_t{value}); }
  JsonText& add(std::string_view key, const JsonText& object);
  JsonText& add(std::string_view key, const std::vector<JsonText>& array);  // one item per line

  std::string text() const { return "{" + fields_ + "}"; }

 private:
  JsonText& add_raw(std::string_view key, std::string_view value);
  std::string fields_;
};

}  // namespace shale::bench
