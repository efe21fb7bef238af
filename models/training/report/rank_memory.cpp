#include "shale/models/training/report/rank_memory.h"

#include <fstream>

#include "shale/base/error.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

std::string json_of(const MemoryPeak& peak) {
  std::string text = "{";
  for (int tag = 0; tag < kMemoryTags; ++tag) {
    text += cat("\"", memory_tag_name(MemoryTag(tag)),
                "\": ", peak.by_tag[static_cast<size_t>(tag)], ", ");
  }
  return cat(text, "\"allocated\": ", peak.allocated, ", \"reserved\": ", peak.reserved, "}");
}

MemoryPeak peak_of(const JsonObject& object) {
  MemoryPeak peak;
  for (int tag = 0; tag < kMemoryTags; ++tag) {
    peak.by_tag[static_cast<size_t>(tag)] = object.integer(memory_tag_name(MemoryTag(tag)));
  }
  peak.allocated = object.integer("allocated");
  peak.reserved = object.integer("reserved");
  return peak;
}

}  // namespace

std::string to_json(const RankMemory& memory) {
  const std::string host = memory.host ? cat(", \"host\": ", json_of(*memory.host)) : std::string();
  return cat("{\"rank\": ", memory.rank, ", \"threads\": ", memory.threads,
             ", \"device\": ", json_of(memory.device), host, "}");
}

std::vector<RankMemory> read_memory(const std::string& run) {
  const std::string path = file_in(run, kMemoryFile);
  std::ifstream file(path);
  if (!file) {
    throw MissingInputError(
        cat(path, ": cannot be read; expected the folder of a run that has ended"));
  }
  std::vector<RankMemory> ranks;
  for (std::string line; std::getline(file, line);) {
    const JsonObject object(line, cat(path, ":", ranks.size() + 1));
    RankMemory memory{.rank = static_cast<int>(object.integer("rank")),
                      .threads = static_cast<int>(object.integer("threads"))};
    const auto device = object.object("device"), host = object.object("host");
    if (!device) object.fail("device", "an object of bytes by tag");
    memory.device = peak_of(*device);
    if (host) memory.host = peak_of(*host);
    if (memory.rank != static_cast<int>(ranks.size())) {
      object.fail("rank", cat(ranks.size(), ", the ranks in order"));
    }
    ranks.push_back(memory);
  }
  return ranks;
}

}  // namespace shale::models
