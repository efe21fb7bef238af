#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale::bench {

// A JSON object as it is written, fields in the order of the calls: what bench_kernels needs of
// JSON, which is also built where there is no JSON library.
class JsonText {
 public:
  JsonText& add(std::string_view key, std::string_view value);
  JsonText& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonText& add(std::string_view key, double value);  // seven digits; null unless finite
  JsonText& add(std::string_view key, int64_t value);
  JsonText& add(std::string_view key, int value) { return add(key, int64_t{value}); }
  JsonText& add(std::string_view key, const JsonText& object);
  JsonText& add(std::string_view key, const std::vector<JsonText>& array);  // one a line

  std::string text() const { return "{" + fields_ + "}"; }

 private:
  JsonText& add_raw(std::string_view key, std::string_view value);
  std::string fields_;
};

}  // namespace shale::bench
