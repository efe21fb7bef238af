#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Returns a field of /proc/meminfo, such as "MemTotal", in bytes; 0 if there is no such field.
int64_t meminfo_bytes(std::string_view key);

// Returns the folders of this process's control group, and of the groups that contain it.
// controller: "" for cgroup version 2.
std::vector<std::string> cgroup_folders(std::string_view controller);

// Returns the smallest memory limit of this process's control groups, in bytes; nullopt: no limit.
std::optional<int64_t> cgroup_memory_limit();

// Returns how many processes of this process's control groups the kernel has killed for lack of
// memory, since the groups were made. The difference of two calls tells what happened in between.
int64_t oom_kills();

// Returns the bytes that processes of this host can still allocate: MemAvailable, or what a control
// group of this process has left, if that is less. nullopt: unknown.
std::optional<int64_t> available_host_memory();

// Throws OutOfMemoryError if the host's memory cannot hold `bytes` more. Without this check the
// kernel would kill a process later, without a message. `mapped`: bytes that this process has
// mapped; parts that it has not touched yet will also need memory. Does not check small requests.
void require_host_memory(int64_t bytes, int64_t mapped = 0);

}  // namespace shale
