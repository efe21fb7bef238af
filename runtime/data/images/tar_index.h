#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace shale::image_internal {

// A regular file in a tar archive.
struct TarMember {
  std::string name;   // name, including its folders
  int64_t begin = 0;  // offset of its contents in the archive
  int64_t bytes = 0;
};

// Calls `visit` for each regular file of an archive in ustar, pax or GNU format, without reading
// contents. Returns an empty string if it reached the end. Otherwise returns the problem that
// stopped it, such as an invalid header or a truncated member.
std::string index_tar(std::span<const std::byte> archive,
                      const std::function<void(const TarMember&)>& visit);

}  // namespace shale::image_internal
