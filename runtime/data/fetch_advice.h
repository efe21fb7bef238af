#pragma once

#include <string>
#include <string_view>

namespace shale::data_internal {

// Returns what to do about a path that does not exist: for an address, such as s3://..., and for a
// name of the Hugging Face hub, the command that fetches it; else "".
std::string fetch_advice(std::string_view path);

}  // namespace shale::data_internal
