#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Makes the headers and the directory of a zip archive of uncompressed members. All sizes have 64
// bits, so that archives of any size have the same format.
class ZipLayout {
 public:
  // Returns the bytes of a member: its header and its data.
  std::string add(const std::string& name, std::string_view data);
  // Returns the header of a member whose data the caller writes next. The data begins at a multiple
  // of `alignment` bytes in the archive. set_crc() must follow before directory().
  std::string add_header(const std::string& name, uint64_t data_bytes, uint64_t alignment);
  // Sets the checksum of the last member's data (zip_crc32). Returns the offset in the archive at
  // which to write it.
  uint64_t set_crc(uint32_t crc);
  // Returns the archive's directory, which follows the members.
  std::string directory() const;
  // Total bytes of members and headers so far.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Member {
    std::string name;
    uint64_t begin = 0;  // offset of the member's header
    uint64_t bytes = 0;
    uint32_t crc = 0;
  };
  std::vector<Member> members_;
  uint64_t bytes_ = 0;
};

}  // namespace shale
