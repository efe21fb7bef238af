#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Returns a field of /proc/meminfo, such as "MemTotal", in bytes; 0 if it is not there.
int64_t meminfo_bytes(std::string_view key);

// Returns the folders of this process's control group for `controller` ("" for version 2), and of
// its ancestors.
std::vector<std::string> cgroup_folders(std::string_view controller);

// Returns the smallest memory limit of these groups, in bytes; nothing if there is none.
std::optional<int64_t> cgroup_memory_limit();

// Returns the bytes that this host's processes can still take: MemAvailable, or what a control
// group of this process has left, if that is less. nullopt: unknown.
std::optional<int64_t> available_host_memory();

// Throws OutOfMemoryError if `bytes` more would not fit the host's memory, where the kernel would
// end a process later, without a message. `mapped`: bytes that this process has mapped, some of
// them not touched yet, which available_host_memory() does not know. Small requests are not checked.
void require_host_memory(int64_t bytes, int64_t mapped = 0);

}  // namespace shale
