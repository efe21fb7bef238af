#pragma once

#include <string>
#include <string_view>

namespace shale::test {

// gzipped() returns the text as a gzip member, zstd_frame() as a zstd frame.
std::string gzipped(std::string_view text);
std::string zstd_frame(std::string_view text);

}  // namespace shale::test
