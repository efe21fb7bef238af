#pragma once

#include <string>
#include <string_view>

namespace shale {

// Parts of messages about a GPU whose hardware fails: "broken GPU 0000:17:00.0 of host a".
inline constexpr std::string_view kBrokenGpu = "broken GPU ", kOfHost = " of host ";

// Name of this host.
std::string host_name();

// Name and boot ID of this host. Differs between hosts that share a name, as clones of an image do.
std::string host_identity();

}  // namespace shale
