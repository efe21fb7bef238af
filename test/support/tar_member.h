#pragma once

#include <string>

namespace shale::test {

// A member of a tar archive in the format ustar: its header, and the content, filled to whole
// blocks.
std::string tar_member(const std::string& name, const std::string& content, char type = '0',
                       const std::string& prefix = "");

}  // namespace shale::test
