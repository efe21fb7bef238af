#include "shale/models/training/checks/health_check.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/fingerprint.h"
#include "shale/comm/same_on_all.h"
#include "shale/models/training/checks/disk_room.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::models {
namespace {

constexpr size_t round_up_4(size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

// Returns the build id in a sequence of ELF notes. Each note has a header, the owner's name and the
// contents.
std::string find_build_id(const std::byte* notes, size_t bytes) {
  constexpr std::string_view kOwner("GNU\0", 4);
  size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= bytes) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + at, sizeof header);
    const std::byte* const name = notes + at + sizeof header;
    const std::byte* const contents = name + round_up_4(header.n_namesz);
    at += sizeof header + round_up_4(header.n_namesz) + round_up_4(header.n_descsz);
    if (at > bytes || header.n_type != NT_GNU_BUILD_ID || header.n_namesz != kOwner.size())
      continue;
    if (std::memcmp(name, kOwner.data(), kOwner.size()) != 0) continue;
    std::string text;
    for (size_t i = 0; i < header.n_descsz; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto value = std::to_integer<unsigned>(contents[i]);
      text += {kDigits[value / 16], kDigits[value % 16]};
    }
    return text;
  }
  return "";
}

// Called for each loaded object, until the object that contains this function, which is the program
// or libshale.so.
int look_at_object(dl_phdr_info* object, size_t, void* result) {
  const auto here = reinterpret_cast<ElfW(Addr)>(&look_at_object);
  bool is_ours = false;
  std::string found;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const ElfW(Addr) begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) {
      is_ours = is_ours || (here >= begin && here < begin + segment.p_memsz);
    } else if (segment.p_type == PT_NOTE && found.empty()) {
      found = find_build_id(reinterpret_cast<const std::byte*>(begin), segment.p_memsz);
    }
  }
  if (is_ours) *static_cast<std::string*>(result) = found;
  return is_ours ? 1 : 0;
}

constexpr const char* kTag = "health check";

// Throws CommError unless each element of `sums`, the result of an all-reduce of ones, is the
// number of ranks.
void check_sums_of_ones(const comm::ProcessGroup& group, std::span<const float> sums) {
  const auto want = static_cast<float>(group.size());
  const auto wrong = std::find_if(sums.begin(), sums.end(), [&](float x) { return x != want; });
  if (wrong == sums.end()) return;
  throw CommError(cat("health check: rank ", group.rank(), ": an all-reduce of ones over ",
                      group.backend(), " gives ", *wrong, " at element ", wrong - sums.begin(),
                      ", expected ", want, " from ", group.size(), " ranks"));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    std::string line(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
    while (!line.empty() && (line.back() == '\n' || line.back() == ',')) line.pop_back();
    line.erase(0, line.find_first_not_of(' '));
    if (!line.starts_with("\"threads\":")) lines.push_back(std::move(line));
  }
  return lines;
}

// Returns true if all ranks have equal lines. Compares 64-bit hashes.
bool have_equal_hashes(comm::ProcessGroup& group, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  const auto hash = static_cast<int64_t>(std::hash<std::string>()(text));
  int64_t largest[] = {hash, ~hash};
  group.all_reduce_max(make_view(largest, {2}), {.tag = "options"});
  return largest[0] == ~largest[1];
}

// Compares the options of all ranks. Gathers the texts, of some KB each, only if their hashes
// differ, and line by line, because a whole text is too long for a message.
void check_same_options(comm::ProcessGroup& group, std::string_view config) {
  if (have_equal_hashes(group, lines_of(config))) return;
  const std::vector<std::string> all = group.all_gather_bytes(config, "options");
  const std::vector<std::string> first = lines_of(all.front());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> other = lines_of(all[rank]);
    const auto [a, b] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    if (a == first.end() && b == other.end()) continue;
    const auto text = [](const auto& line, const auto& lines) {
      return line == lines.end() ? std::string("nothing") : *line;
    };
    throw CommError(cat("options differ between ranks: rank 0 has ", text(a, first), ", rank ",
                        rank, " has ", text(b, other), "; start all ranks with the same options"));
  }
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(look_at_object, &id);
  if (!id.empty()) return id;
  struct stat file {};
  if (stat("/proc/self/exe", &file) != 0) return "unknown";
  return cat(file.st_size, " bytes");
}

void check_ranks(comm::ProcessGroup& device_group, std::string_view config) {
  comm::ProcessGroup& group = device_group.host();
  if (group.size() == 1) return;
  comm::require_same_on_all(group, "the program's build", build_id());
  comm::require_same_on_all(group, "libraries",
                            cat(comm::mpi_version(), ", glibc ", gnu_get_libc_version()));
  check_same_options(group, config);
  std::array<float, 1000> ones;
  ones.fill(1);
  group.all_reduce_sum(make_view(ones.data(), {int64_t{ones.size()}}), {.tag = kTag});
  check_sums_of_ones(group, ones);
}

void check_device_sums(Context& context, comm::ProcessGroup& group) {
  if (group.size() == 1) return;
  // Number of elements for which every transport of a group takes part.
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> sums;
  {
    const Tensor ones = full(context, {kCount}, DType::kF32, 1);
    group.all_reduce_sum(ones, {.tag = kTag, .stream = context.exec().stream});
    sums = to_host<float>(ones);
  }
  check_sums_of_ones(group, sums);
  // Frees this memory, so that the memory statistics of the run exclude it.
  context.allocator().release_cached();
  context.allocator().reset_peak();
}

void check_room(const std::string& folder, int64_t checkpoint_bytes, int64_t count) {
  const auto room = disk_room(folder);
  if (!room) throw DiskError(cat("output: ", folder, ": ", std::strerror(errno)));
  const auto text = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const std::string found =
      cat("output: the disk of ", folder, " has ", text(room->free_bytes), " free, expected ");
  if (room->free_bytes < checkpoint_bytes) {
    throw DiskError(
        cat(found, text(checkpoint_bytes), " for a checkpoint; use another --out, or --no-save"));
  }
  if (room->free_bytes / count >= checkpoint_bytes) return;
  log_warning(found, text(checkpoint_bytes * count), " for ", count,
              " checkpoints (--keep and the next one); use a smaller --keep, or another --out");
}

void check_cores(const comm::World& world, const Device& device) {
  if (device.type != DeviceType::kCpu || world.local_rank() != 0) return;
  const int cpus = cpu_counts().node;
  if (world.local_size() <= cpus) return;
  log_warning(world.local_size(), " ranks share the ", cpus, cpus == 1 ? " CPU" : " CPUs",
              " of this host and take turns; start at most ", cpus, " here to train faster");
}

void check_learning_rate(const RunConfig& config, const comm::World& world) {
  using enum OptimizerKind;
  constexpr double kFar = 10, kTiny = 0.01;
  const bool is_known = config.usual_lr > 0 && config.lr > 0;
  const bool is_adamw = config.optimizer == kAdamW || config.optimizer == kAdamWBF16 ||
                        config.optimizer == kAdamW8bit;
  if (!is_known || !is_adamw || world.rank() != 0) return;
  const double ratio = config.lr / config.usual_lr;
  if (ratio <= kFar && ratio >= kTiny) return;
  log_warning("--lr ", format_number(config.lr), " is far from the ",
              format_number(config.usual_lr), " of this model's preset; training may ",
              ratio > 1 ? "diverge; lower it" : "learn nothing; raise it", ", or leave out --lr");
}

void check_room_for_mpi(const comm::World& world) {
  if (!world.uses_mpi() || world.local_rank() != 0) return;
  const int64_t wanted_bytes = room_for_mpi(world.local_size());
  for (const MpiFolder& folder : mpi_folders()) {
    const auto room = disk_room(folder.path);
    if (!room || room->free_bytes >= wanted_bytes) continue;
    log_warning(folder.path, " has ", format_bytes(static_cast<double>(room->free_bytes)),
                " free, expected ", format_bytes(static_cast<double>(wanted_bytes)),
                " for MPI files; ranks may hang or die of SIGBUS; ", folder.if_full);
  }
}

}  // namespace shale::models
