#pragma once

#include <string>
#include <string_view>

namespace shale::test {

// A gzip member, and a zstd frame.
std::string gzipped(std::string_view text);
std::string zstd_frame(std::string_view text);

}  // namespace shale::test
