#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace shale {

// name -> uncompressed data
using ZipMembers = std::map<std::string, std::span<const std::byte>, std::less<>>;

// Returns the members of a zip archive in memory, as subspans of `archive`; nothing is copied.
// Archives with 64-bit sizes are supported. Throws DataError, which begins with `source`, for a
// malformed archive, for members beyond its end, for repeated names, and for members that are
// compressed, encrypted or in other files. torch.save writes none of these.
ZipMembers read_zip(std::span<const std::byte> archive, std::string_view source);

}  // namespace shale
