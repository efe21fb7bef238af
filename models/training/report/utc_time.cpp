#include "shale/models/training/report/utc_time.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "shale/base/text.h"

namespace shale::models {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> date{};
  const size_t length = std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ", static_cast<int>(ms % 1000));
  return cat(std::string_view(date.data(), length), fraction.data());
}

std::optional<double> utc_seconds(const std::string& text) {
  std::tm day{};
  double seconds = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lfZ", &day.tm_year, &day.tm_mon, &day.tm_mday,
                  &day.tm_hour, &day.tm_min, &seconds) != 6) {
    return {};
  }
  day.tm_year -= 1900;
  day.tm_mon -= 1;
  return static_cast<double>(timegm(&day)) + seconds;
}

}  // namespace shale::models
