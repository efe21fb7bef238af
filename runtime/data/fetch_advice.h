#pragma once

#include <string>
#include <string_view>

namespace shale::data_internal {

// Returns advice about a path that does not exist. If it is an address, such as s3://..., or a name
// of the Hugging Face hub, the advice is the command that fetches it. Otherwise returns "".
std::string fetch_advice(std::string_view path);

}  // namespace shale::data_internal
