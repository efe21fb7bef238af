#include <algorithm>
#include <exception>
#include <map>
#include <optional>

#include "shale/comm/group_factory_internal.h"
#include "shale/comm/hosts/numa_nodes.h"
#include "shale/comm/link/host_link.h"
#include "shale/comm/mpi/group_mpi_internal.h"
#include "shale/comm/mpi/mpi_mailbox_internal.h"
#include "shale/comm/node/node_mailbox.h"
#include "shale/comm/watch/group_progress_internal.h"
#include "shale/kernels/registry.h"

namespace shale::comm {
namespace {

constexpr const char* kCancelled =
    "given up, because an exception ended the scope of the operation";

struct EndUse {
  SharedMemory& memory;
  ~EndUse() { memory.end_use(); }
};

// Communicator of the ranks on this rank's node. A node is a host. If all ranks are on one host, it
// is a NUMA node, provided that this changes no bit of a sum.
struct NodeOfGroup {
  MpiComm comm;
  bool part_of_host = false;
};

NodeOfGroup node_of(const MpiComm& comm, const GroupOptions& options, const WorldContext& context) {
  if (options.ranks_per_node != 0) {
    return {.comm = MpiComm::split(comm.get(), comm.rank() / options.ranks_per_node, comm.rank())};
  }
  MpiComm host = MpiComm::split_by_node(comm.get(), comm.rank());
  if (context.numa_nodes.empty() || host.size() < comm.size()) return {.comm = std::move(host)};
  const int mine = context.numa_nodes[static_cast<size_t>(context.rank)];
  std::vector<int> nodes(static_cast<size_t>(comm.size()));
  check_mpi(MPI_Allgather(&mine, 1, MPI_INT, nodes.data(), 1, MPI_INT, comm.get()),
            "MPI_Allgather");
  if (!nodes_keep_tree(nodes)) return {.comm = std::move(host)};
  return {.comm = MpiComm::split(comm.get(), mine, comm.rank()), .part_of_host = true};
}

Topology find_topology(const MpiComm& comm, const NodeOfGroup& of_group, int world_rank) {
  const MpiComm& node = of_group.comm;
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

  Topology topology{.one_host = of_group.part_of_host};
  std::map<int, std::vector<int>> by_leader;  // ordered by lowest rank
  for (int r = 0; r < comm.size(); ++r) {
    const Place& place = places[static_cast<size_t>(r)];
    by_leader[place.leader].push_back(r);
    topology.world_ranks.push_back(place.world_rank);
  }
  topology.node_of_rank.resize(places.size());
  for (auto& [leader, ranks] : by_leader) {
    if (leader == mine.leader) {
      topology.node = static_cast<int>(topology.ranks_of.size());
      const auto found = std::find(ranks.begin(), ranks.end(), comm.rank());
      topology.local = static_cast<int>(found - ranks.begin());
    }
    for (const int rank : ranks) {
      topology.node_of_rank[static_cast<size_t>(rank)] = topology.nodes();
    }
    topology.ranks_of.push_back(std::move(ranks));
  }
  return topology;
}

// Size of a staging area in bytes. Areas are longer if there are several nodes, to make up for the
// latency of the network.
int64_t staging_bytes(const Topology& topology, const GroupOptions& options) {
  const int64_t bytes = options.staging_bytes * (topology.nodes() > 1 ? 4 : 1);
  // The minimum is a cache line for each rank's slice, and the table of counts.
  return std::max(bytes,
                  NodeExchange::smallest_staging(static_cast<int>(topology.world_ranks.size())));
}

ChannelOptions channel_options(const Topology& topology, const GroupOptions& options,
                               WorldContext& context) {
  ChannelOptions result{.group_name = options.name,
                        .timeout_s = options.timeout_s,
                        .staging_bytes = staging_bytes(topology, options),
                        .crowded = context.crowded,
                        .places = &context.places,
                        .signs = &context.signs};
  for (const int rank : topology.local_ranks()) {
    result.world_ranks.push_back(topology.world_ranks[static_cast<size_t>(rank)]);
  }
  result.poll = [&board = context.board, &queue = context.queue(options.lane)](bool finishing) {
    board.check();
    if (!finishing && queue.cancelled()) throw CommError(kCancelled);
  };
  return result;
}

}  // namespace

struct MpiGroup::Engine {
  Engine(WorldContext& context, const MpiComm& comm, const GroupOptions& options)
      : node(node_of(comm, options, context)),
        topology(find_topology(comm, node, context.rank)),
        memory(NodeMemory::create(
            node.comm, NodeChannel::bytes(node.comm.size(), staging_bytes(topology, options)),
            options.share_memory && context.peers_can_map)),
        channel(memory->data(), topology.local, node.comm.size(),
                channel_options(topology, options, context)),
        in_node(channel, memory->peers_can_map() ? &context.memory : nullptr,
                {.device = {}, .threads = options.threads}, topology.local_ranks(), comm.size()) {
    if (topology.nodes() == 1) return;
    const bool on_rail = topology.local < topology.rails();
    inter_node.emplace(
        topology,
        MpiComm::split(comm.get(), on_rail ? topology.local : MPI_UNDEFINED, topology.node),
        comm.get(), channel, in_node, Exec{.device = {}, .threads = options.threads});
  }

  NodeOfGroup node;
  Topology topology;
  std::unique_ptr<NodeMemory> memory;
  NodeChannel channel;
  NodeCollectives in_node;
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
  // While an exception unwinds, the other ranks do not know of it yet. They may never join the
  // collectives that this rank has queued, so do not wait for these.
  const bool unwinding = std::uncaught_exceptions() > 0;
  if (unwinding) {
    queue().cancel();
  } else {
    queue().drain();
  }
  // After an exception, do not tell the other ranks that this rank left: they must wait until they
  // see its report of the exception.
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
    // Memory freed from now on is kept until the collective has ended.
    context_->memory.begin_use();
    return queue().enqueue(
        [this, call](bool blocking) {
          const EndUse end_use{context_->memory};
          execute(call, blocking);
        },
        options().tracer);
  }
  queue().run([&](bool blocking) { execute(call, blocking); }, options().tracer);
  return Work();
}

void MpiGroup::execute(const CollectiveCall& call, bool blocking) {
  if (!failure_.empty()) {
    context_->board.check();  // throws that rank's error if another rank failed
    throw CommError(cat("group '", options().name, "' cannot be used any more: ", failure_));
  }
  const RecentCollectives::Scope record(context_->recent, options().name,
                                        fingerprint(call, sequence_), call.larger_bytes(),
                                        engine_->topology.world_ranks.front());
  const FlightScope flight(meter());
  try {
    if (queue().cancelled()) throw CommError(kCancelled);
    if (engine_->inter_node) {
      engine_->inter_node->run(call, sequence_, blocking);
      meter()->add_crossing(call.traffic, static_cast<double>(engine_->inter_node->sent_bytes()));
    } else {
      engine_->in_node.run(call, sequence_, blocking);
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

// Opens a mailbox in memory of the sender, which the receiver maps.
std::unique_ptr<Mailbox> MpiGroup::node_mailbox(const LinkOptions& options, MPI_Comm comm,
                                                int tag) const {
  const LinkSpec& spec = options.spec;
  const WaitPolicy policy = wait_policy(/*blocking=*/true, context_->crowded);
  SegmentAddress address;
  if (options.sends) {
    SharedSegment memory = SharedSegment::create(NodeMailbox::bytes(spec));
    address = memory.address();
    check_mpi(MPI_Send(&address, sizeof address, MPI_BYTE, spec.receiver, tag, comm), "MPI_Send");
    // Wait until the receiver has mapped the memory, because the sender may be destroyed soon.
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, spec.receiver, tag, comm, MPI_STATUS_IGNORE),
              "MPI_Recv");
    return std::make_unique<NodeMailbox>(std::move(memory), spec, options.sends, policy);
  }
  check_mpi(MPI_Recv(&address, sizeof address, MPI_BYTE, spec.sender, tag, comm, MPI_STATUS_IGNORE),
            "MPI_Recv");
  std::optional<SharedSegment> memory = SharedSegment::attach(address);
  check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, spec.sender, tag, comm), "MPI_Send");
  if (!memory) {
    throw CommError(cat(link_name(options), ": rank ", options.receiver_world, " cannot map ",
                        format_bytes(static_cast<double>(address.bytes)), " of rank ",
                        options.sender_world));
  }
  return std::make_unique<NodeMailbox>(std::move(*memory), spec, options.sends, policy);
}

std::vector<LinkEnd> MpiGroup::open_mailboxes(std::span<const LinkSpec> specs) {
  const Topology& topology = engine_->topology;
  const auto links = std::make_shared<MpiLinks>(MpiComm::split(comm_.get(), 0, rank()));
  const auto on_one_node = [&](const LinkSpec& spec) {
    return engine_->memory->peers_can_map() &&
           (topology.one_host || topology.node_of(spec.sender) == topology.node_of(spec.receiver));
  };
  for (const LinkSpec& spec : specs) {  // every rank checks before any waits for another
    if (!on_one_node(spec)) MpiMailbox::check_capacity(spec);
  }
  std::vector<LinkEnd> ends;
  for (const LinkSpec& spec : specs) {
    const auto world_rank = [&](int rank) {
      return topology.world_ranks[static_cast<size_t>(rank)];
    };
    const int tag = 2 * static_cast<int>(ends.size());
    LinkEnd end{.options = {.spec = spec,
                            .sends = spec.sender == rank(),
                            .sender_world = world_rank(spec.sender),
                            .receiver_world = world_rank(spec.receiver),
                            .group_name = options().name,
                            .timeout_s = options().timeout_s}};
    if (spec.sender == rank() || spec.receiver == rank()) {
      if (on_one_node(spec)) {
        end.mailbox = node_mailbox(end.options, links->comm(), tag);
      } else {
        end.mailbox = std::make_unique<MpiMailbox>(
            context_, links, end.options.sends ? spec.receiver : spec.sender, tag, end.options);
      }
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

std::vector<std::unique_ptr<PipeLink>> MpiGroup::open_links(std::span<const LinkSpec> specs) {
  std::vector<std::unique_ptr<PipeLink>> links;
  for (LinkEnd& end : open_mailboxes(specs)) {
    const bool here = end.mailbox != nullptr;
    links.push_back(here ? std::make_unique<HostLink>(context_, std::move(end)) : nullptr);
  }
  return links;
}

std::unique_ptr<HostGroup> MpiGroup::split_host(int color, int key, const GroupOptions& options) {
  return make_host_group(context_, MpiComm::split(comm_.get(), color, key), options);
}

}  // namespace shale::comm
