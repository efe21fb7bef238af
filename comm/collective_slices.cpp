#include "shale/comm/collective_slices.h"

#include "shale/base/rng.h"
#include "shale/base/text.h"

namespace shale::comm {

void add_slice(Timeline& timeline, const RecentCollectives::Entry& entry, int rank) {
  if (!timeline.is_recording()) return;
  const Fingerprint& call = entry.call;
  const std::string group = entry.group.data(), tag = call.tag;
  const auto sequence = static_cast<int64_t>(call.sequence);
  TraceRecord::About about{.numbers = {{"call", sequence}, {"bytes", entry.bytes}}};
  if (call.role != LinkRole::kNone) {
    const std::string link = cat("link ", call.root, " -> ", call.peer);
    about.flow = hash_name(cat(group, "\n", link, "\n", tag, "\n", sequence));
    about.texts = {{"message", tag}};
    const bool sends = call.role == LinkRole::kSends;
    about.starts_flow = sends;
    timeline.add_slice(link, sends ? "send" : "receive", entry.begun, entry.ended,
                       std::move(about));
    return;
  }
  about.flow = hash_name(cat(group, "\n", entry.first_rank, "\n", sequence));
  about.starts_flow = entry.first_rank == rank;
  about.numbers.emplace_back("first rank", entry.first_rank);
  about.texts = {{"group", group}, {"for", tag}};
  timeline.add_slice(cat("collectives: ", group), op_name(call.op), entry.begun, entry.ended,
                     std::move(about));
}

}  // namespace shale::comm
