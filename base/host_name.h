#pragma once

#include <string>

namespace shale {

// Name of this host.
std::string host_name();

// Name and boot ID of this host. Differs between hosts that share a name, as clones of an image do.
std::string host_identity();

}  // namespace shale
