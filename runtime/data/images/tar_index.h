#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace shale::image_internal {

// A regular file in a tar archive.
struct TarMember {
  std::string name;   // with its folders
  int64_t begin = 0;  // of its content, in the archive
  int64_t bytes = 0;
};

// Goes through an archive in the formats ustar, pax and GNU, without its content, and calls `visit`
// for each regular file. Returns what ended it before its time, such as a header that is none or a
// member that is cut; empty: it went to its end.
std::string index_tar(std::span<const std::byte> archive,
                      const std::function<void(const TarMember&)>& visit);

}  // namespace shale::image_internal
