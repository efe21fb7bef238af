#pragma once

#include <string>

namespace shale::test {

// Returns a member of a tar archive in ustar format: a header and the content, padded to whole
// blocks.
std::string tar_member(const std::string& name, const std::string& content, char type = '0',
                       const std::string& prefix = "");

}  // namespace shale::test
