#include "shale/comm/collective_slices.h"

#include "shale/base/rng.h"
#include "shale/base/text.h"

namespace shale::comm {
namespace {

struct Shown {
  std::string track;
  std::string_view name;
  TraceRecord::About about;
};

Shown shown(std::string_view group, const Fingerprint& call, int64_t bytes, int first_rank,
            int rank) {
  const std::string tag = call.tag;
  const auto sequence = static_cast<int64_t>(call.sequence);
  TraceRecord::About about{.numbers = {{"call", sequence}, {"bytes", bytes}}};
  if (call.role != LinkRole::kNone) {
    std::string link = cat("link ", call.root, " -> ", call.peer);
    about.flow = hash_name(cat(group, "\n", link, "\n", tag, "\n", sequence));
    about.texts = {{"message", tag}};
    about.starts_flow = call.role == LinkRole::kSends;
    return {std::move(link), about.starts_flow ? "send" : "receive", std::move(about)};
  }
  about.flow = hash_name(cat(group, "\n", first_rank, "\n", sequence));
  about.starts_flow = first_rank == rank;
  about.numbers.emplace_back("first rank", first_rank);
  about.texts = {{"group", std::string(group)}, {"for", tag}};
  return {cat("collectives: ", group), op_name(call.op), std::move(about)};
}

}  // namespace

void add_slice(Timeline& timeline, const RecentCollectives::Entry& entry, int rank) {
  if (!timeline.is_recording() || entry.on_device) return;
  Shown slice = shown(entry.group.data(), entry.call, entry.bytes, entry.first_rank, rank);
  timeline.add_slice(slice.track, slice.name, entry.begun, entry.ended, std::move(slice.about));
}

void DeviceSlice::end(std::string_view group, const Fingerprint& call, int64_t bytes,
                      int first_rank, int rank) {
  if (timeline_ == nullptr || begin_ == StreamMarks::kNone) return;
  Shown slice = shown(group, call, bytes, first_rank, rank);
  timeline_->add_device_slice(slice.track, slice.name, begin_, timeline_->mark(stream_),
                              std::move(slice.about));
}

}  // namespace shale::comm
