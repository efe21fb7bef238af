#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace shale {

using ZipMembers = std::map<std::string, std::span<const std::byte>, std::less<>>;  // by name

// Returns the members of a zip archive in memory, also one with 64-bit sizes, as parts of
// `archive`. Nothing is copied. Throws DataError, which begins with `source`, for a malformed
// archive, members beyond its end, repeated names, and members that are compressed, encrypted or in
// other files; torch.save writes none of these.
ZipMembers read_zip(std::span<const std::byte> archive, std::string_view source);

}  // namespace shale
