#include <algorithm>
#include <exception>
#include <map>
#include <optional>

#include "shale/comm/group_factory_internal.h"
#include "shale/comm/mpi/group_mpi_internal.h"
#include "shale/comm/watch/group_progress_internal.h"
#include "shale/kernels/registry.h"

namespace shale::comm {
namespace {

constexpr const char* kCancelled = "given up, because an exception ended what it was for";

struct EndUse {
  SharedMemory& memory;
  ~EndUse() { memory.end_use(); }
};

MpiComm node_of(const MpiComm& comm, const GroupOptions& options) {
  if (options.ranks_per_node == 0) return MpiComm::split_by_node(comm.get(), comm.rank());
  return MpiComm::split(comm.get(), comm.rank() / options.ranks_per_node, comm.rank());
}

Topology find_topology(const MpiComm& comm, const MpiComm& node, int world_rank) {
  struct Place {
    int leader;  // lowest rank of the node
    int world_rank;
  };
  Place mine{.leader = comm.rank(), .world_rank = world_rank};
  check_mpi(MPI_Bcast(&mine.leader, 1, MPI_INT, 0, node.get()), "MPI_Bcast");
  std::vector<Place> places(static_cast<size_t>(comm.size()));
  check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, places.data(), sizeof mine, MPI_BYTE, comm.get()),
      "MPI_Allgather");

  Topology topology;
  std::map<int, std::vector<int>> by_leader;  // in the order of lowest ranks
  for (int r = 0; r < comm.size(); ++r) {
    const Place& place = places[static_cast<size_t>(r)];
    by_leader[place.leader].push_back(r);
    topology.world_ranks.push_back(place.world_rank);
  }
  for (auto& [leader, ranks] : by_leader) {
    if (leader == mine.leader) {
      topology.node = static_cast<int>(topology.ranks_of.size());
      const auto found = std::find(ranks.begin(), ranks.end(), comm.rank());
      topology.local = static_cast<int>(found - ranks.begin());
    }
    topology.ranks_of.push_back(std::move(ranks));
  }
  return topology;
}

// Longer chunks make up for the latency between nodes.
int64_t staging_bytes(const Topology& topology, const GroupOptions& options) {
  const int64_t bytes = options.staging_bytes * (topology.nodes() > 1 ? 4 : 1);
  // A cache line for each rank's slice, and counts.
  return std::max(bytes,
                  NodeExchange::smallest_staging(static_cast<int>(topology.world_ranks.size())));
}

ChannelOptions channel_options(const Topology& topology, const GroupOptions& options,
                               WorldContext& context) {
  ChannelOptions result{.group_name = options.name,
                        .timeout_s = options.timeout_s,
                        .staging_bytes = staging_bytes(topology, options),
                        .crowded = context.crowded};
  for (const int rank : topology.local_ranks()) {
    result.world_ranks.push_back(topology.world_ranks[static_cast<size_t>(rank)]);
  }
  result.poll = [&context](bool finishing) {
    context.board.check();
    if (!finishing && context.queue.cancelled()) throw CommError(kCancelled);
  };
  return result;
}

}  // namespace

struct MpiGroup::Engine {
  Engine(WorldContext& context, const MpiComm& comm, const GroupOptions& options)
      : node_comm(node_of(comm, options)),
        topology(find_topology(comm, node_comm, context.rank)),
        memory(NodeMemory::create(
            node_comm, NodeChannel::bytes(node_comm.size(), staging_bytes(topology, options)),
            options.share_memory && context.peers_can_map)),
        channel(memory->data(), topology.local, node_comm.size(),
                channel_options(topology, options, context)),
        node(channel, memory->peers_can_map() ? &context.memory : nullptr,
             {.device = {}, .threads = options.threads}, topology.local_ranks(), comm.size()) {
    if (topology.nodes() == 1) return;
    const bool in_lane = topology.local < topology.lanes();
    inter_node.emplace(
        topology,
        MpiComm::split(comm.get(), in_lane ? topology.local : MPI_UNDEFINED, topology.node),
        comm.get(), channel, node, Exec{.device = {}, .threads = options.threads});
  }

  MpiComm node_comm;
  Topology topology;
  std::unique_ptr<NodeMemory> memory;
  NodeChannel channel;
  NodeCollectives node;
  std::optional<InterNode> inter_node;
};

MpiGroup::MpiGroup(std::shared_ptr<WorldContext> context, MpiComm comm, const GroupOptions& options)
    : HostGroup(comm.rank(), comm.size(), options),
      context_(std::move(context)),
      comm_(std::move(comm)) {
  kernels::register_cpu_kernels();
  engine_ = std::make_shared<Engine>(*context_, comm_, options);
}

MpiGroup::~MpiGroup() {
  // An exception that unwinds has not reached the other ranks yet: they may never come to what this
  // one has queued.
  const bool unwinding = std::uncaught_exceptions() > 0;
  if (unwinding) {
    context_->queue.cancel();
  } else {
    context_->queue.drain();
  }
  // The others look for the reason of an exception elsewhere, where it is still to be posted.
  if (!unwinding) engine_->channel.leave();
  if (unwinding || !failure_.empty()) {
    if (engine_->inter_node && engine_->inter_node->requests_pending()) {
      context_->requests_pending = true;
    }
    context_->kept.push_back(engine_);
    context_->kept.push_back(std::make_shared<MpiComm>(std::move(comm_)));
  }
}

Work MpiGroup::submit(const CollectiveCall& call, bool async) {
  if (async) {
    // Memory that is freed from here on is kept until the collective has ended.
    context_->memory.begin_use();
    return context_->queue.enqueue(
        [this, call](bool blocking) {
          const EndUse end_use{context_->memory};
          execute(call, blocking);
        },
        options().tracer);
  }
  context_->queue.run([&](bool blocking) { execute(call, blocking); }, options().tracer);
  return Work();
}

void MpiGroup::execute(const CollectiveCall& call, bool blocking) {
  if (!failure_.empty()) {
    context_->board.check();  // another rank's failure stays that, however often it is met
    throw CommError(cat("group '", options().name, "' cannot be used any more: ", failure_));
  }
  const RecentCollectives::Scope record(context_->recent, options().name,
                                        fingerprint(call, sequence_), call.larger_bytes());
  const FlightScope flight(meter());
  try {
    if (context_->queue.cancelled()) throw CommError(kCancelled);
    if (engine_->inter_node) {
      engine_->inter_node->run(call, sequence_, blocking);
    } else {
      engine_->node.run(call, sequence_, blocking);
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
    context_->memory.keep(call.in.data);
    context_->memory.keep(call.out.data);
    throw;
  }
  ++sequence_;
}

std::unique_ptr<GroupProgress> MpiGroup::make_progress() {
  return std::make_unique<GroupProgress>(MpiComm::split(comm_.get(), 0, rank()),
                                         engine_->topology.world_ranks);
}

std::unique_ptr<HostGroup> MpiGroup::split_host(int color, int key, std::string_view name) {
  GroupOptions options = this->options();
  options.name = name;
  return make_host_group(context_, MpiComm::split(comm_.get(), color, key), options);
}

}  // namespace shale::comm
