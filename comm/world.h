#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "shale/base/error.h"
#include "shale/comm/hosts/device_choice.h"
#include "shale/comm/process_group.h"

namespace shale {
class DeviceBackend;
class Timeline;
}  // namespace shale

namespace shale::comm {

struct MpiCommunicator;  // shale/mpi.h

// How ranks watch each other, for World::watch() and run().
struct WatchOptions {
  double timeout_s = 600;  // longest wait for a collective, see GroupOptions; 0: no watch
  // Longest time without a heartbeat of a rank; must be less than timeout_s to matter. A separate
  // thread sends 20 heartbeats a second on a host and 5 between hosts, so neither slow steps nor
  // saves delay them.
  double lost_s = 90;
  // Minimum time-out of all groups until World::started(); 0: no limit. A rank without heartbeats
  // is still lost after lost_s.
  double start_s = -1;  // negative: no special limit at the start
  // Returns true if this process was asked to end. From then on, a rank that is silent for 10 s
  // counts as lost, because ranks that wait for it can neither save nor continue. Called on the
  // watchdog's thread.
  std::function<bool()> ending = {};
  // Folder for reports of what each rank was doing when communication failed, one file per host.
  // Its parent must exist. Standard error then shows only ranks that differ from most ranks of
  // their host, and at the end the cause. Empty, or not writable: standard error has all reports.
  std::string reports = {};
};

// The processes of this run. The constructor calls MPI_Init, the destructor MPI_Finalize. Without a
// launcher (mpirun, srun) there is one rank and MPI is not started. A process has at most one
// World.
//
// A World can also be a guest in a program that has started MPI itself. It then has the ranks of a
// communicator, which it duplicates. It neither initialises nor finalises MPI, and must be
// destroyed before MPI_Finalize. When a rank fails, no process is ended. Ranks on its node that
// wait for it throw PeerFailure; ranks on other nodes throw CommError at the group's time-out. The
// World is unusable afterwards.
class World {
 public:
  World(int argc, char** argv);
  // Makes the World a guest. Throws InternalError unless MPI is running and this is an
  // intracommunicator; UnavailableError if MPI was started with less than MPI_THREAD_MULTIPLE.
  // Collective over the communicator.
  explicit World(const MpiCommunicator& communicator);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  int local_rank() const;  // index among the ranks of this node
  int local_size() const;
  bool uses_mpi() const;  // false: MPI was not started and must not be called

  // Returns the device of this rank: one GPU per rank if there are GPUs, otherwise the CPU; see
  // DeviceWish. Throws UnavailableError, on all ranks. Collective.
  Device device(const DeviceWish& wish = {});
  // Like device(wish), with `gpus` in place of the driver's list of the GPUs that this rank sees.
  Device device(const DeviceWish& wish, const GpuList& gpus);

  // Makes a group of all ranks for views in host memory. Collective: all ranks make groups in the
  // same order.
  std::unique_ptr<ProcessGroup> group(const GroupOptions& options = {});
  // Makes a group of all ranks for views in memory of `device`, which must outlive the group.
  // Collective.
  std::unique_ptr<ProcessGroup> group(const GroupOptions& options, DeviceBackend& device);

  MemoryProvider& memory();  // see ProcessGroup::memory()

  // Starts a thread that exchanges heartbeats with the other ranks, whatever the program does. If a
  // rank sends no heartbeat for lost_s, it is stopped, or its host is cut off or down. Then all
  // other ranks end with exit code 76 and name it. A rank that hangs while it computes is named
  // when a collective that waits for it times out. In both cases, and when ranks disagree, every
  // rank reports its step, its last collectives and the stack of the thread that called watch(). A
  // further call replaces the options. Between hosts, heartbeats are UDP datagrams, sent to the
  // address by which one host knows the other. Collective, with the same options on all ranks.
  void watch(const WatchOptions& options = {});
  // Sets the current training step, for reports.
  void at_step(int64_t step);
  // Ends the start phase: the groups' own time-outs apply from now on (WatchOptions::start_s).
  void started();
  // Sets each rank's position in the mesh, such as "pipeline 1, tensor 0", for messages.
  void set_places(std::vector<std::string> places);
  // Sets the NUMA node of each rank; for a run on one host (comm/hosts/numa_nodes.h). Groups made
  // afterwards add in host memory first inside a NUMA node, then over the nodes, if that changes no
  // bit. Empty, the default: groups ignore NUMA nodes. Must be the same on all ranks.
  void set_numa_nodes(std::vector<int> nodes);
  // Records the collectives of all groups and the messages of links as slices of a timeline. A
  // slice begins when this rank reaches the call and ends with it. Null: stops; nothing may be
  // recording at that time.
  void record(Timeline* timeline);

  // Waits at the end of a run until all ranks have called finish(). Throws PeerFailure if a rank
  // failed instead. The destructor calls it; run() does so earlier.
  void finish();

  // Reports to all ranks of this node that this rank has failed, so that they stop waiting for it.
  // Prints "error: <message> (rank r of n)" unless a lower rank failed with the same words. Returns
  // the exit code if all ranks failed together, or if this World is a guest. Otherwise ends the job
  // with MPI_Abort.
  int fail(ExitCode code, std::string_view message);
  int fail(std::exception_ptr error);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Name of the MPI library in use, such as "Open MPI v4.1.4". Works without a World.
std::string mpi_version();

// Body of a program's main(): `int main(int c, char** v) { return comm::run(c, v, body); }`. Makes
// the World, sets the rank of process_log(), and starts heartbeats (World::watch()) unless the
// time-out is 0. Then calls body, whose result becomes the exit code. An exception ends the job:
// every rank stops within seconds, one error line is printed, and mpirun returns the code of the
// first rank that failed. That is an Error's own code, 71 for std::bad_alloc, 70 for anything else.
int run(int argc, char** argv, const std::function<int(World&)>& body,
        const WatchOptions& watch = {});
// run() for a program that has started MPI itself. An exception is printed and its code becomes the
// result, on this rank and on ranks that wait for it. No process is ended.
int run(const MpiCommunicator& communicator, const std::function<int(World&)>& body,
        const WatchOptions& watch = {});

}  // namespace shale::comm
