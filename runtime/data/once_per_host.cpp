#include "shale/runtime/data/once_per_host.h"

#include "shale/runtime/io/file_maps.h"

namespace shale::data_internal {

void exchange(PackedValues& all, FileMaps& files) {
  std::vector<FileMaps::Entry> entries = files.entries();
  size_t count = entries.size();
  exchange(all, count);
  entries.resize(count);
  for (FileMaps::Entry& file : entries) {
    exchange_all(all, file.path, file.bytes, file.modified_ns);
    if (all.unpacks()) files.add(std::move(file));
  }
}

}  // namespace shale::data_internal
