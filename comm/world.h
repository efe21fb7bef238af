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

// How ranks watch each other: World::watch() and run().
struct WatchOptions {
  double timeout_s = 600;  // longest silence of a rank; 0: for ever
  // Groups whose time-outs are shorter wait so long for another rank until World::started(); 0: for
  // ever. A rank that gives no sign of life is lost after timeout_s all the same.
  double start_s = -1;  // negative: the start is like the rest
};

// The processes of this run: MPI_Init in the constructor, MPI_Finalize at scope exit. Without a
// launcher (mpirun, srun) this is one rank, and MPI is not even started. One per process.
//
// Or some of the processes of a program that has started MPI itself: then the World is a guest
// there. It works in a duplicate of the communicator, initialises and finalises nothing, and goes
// before MPI_Finalize. When a rank fails, no process is ended, neither in the communicator nor
// outside it: ranks that wait for the failed one throw PeerFailure if they are on its node, and
// CommError at the group's time-out if they are on another. The World is of no use afterwards.
class World {
 public:
  World(int argc, char** argv);
  // Collective over the communicator. Throws InternalError unless MPI is running and this is an
  // intracommunicator; UnavailableError if MPI was started with less than MPI_THREAD_MULTIPLE.
  explicit World(const MpiCommunicator& communicator);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  int local_rank() const;  // among the ranks of this node
  int local_size() const;
  bool uses_mpi() const;  // false: MPI was not started and must not be called

  // The device of this rank: a GPU of its own where there are GPUs, else the CPU; see DeviceWish.
  // Collective. Throws UnavailableError, on all ranks.
  Device device(const DeviceWish& wish = {});
  // The same with what a driver would show this rank.
  Device device(const DeviceWish& wish, const GpuList& gpus);

  // A group of all ranks for views in host memory. Collective: same order on all ranks.
  std::unique_ptr<ProcessGroup> group(const GroupOptions& options = {});
  // The same for views in memory of `device`, which outlives the group.
  std::unique_ptr<ProcessGroup> group(const GroupOptions& options, DeviceBackend& device);

  MemoryProvider& memory();  // the memory() of all groups

  // Starts a thread by which ranks give each other signs of life, whatever they are doing. A rank
  // that gives none for the time-out (it is stopped, or its host is cut off or gone) ends the run
  // with code 76 on all others, which name it; a rank that hangs while it computes is named when a
  // collective that waits for it times out. Then, and when ranks disagree, every rank reports its
  // step, its last collectives and the stack of the thread that called this. Called again, it
  // changes the time-out. Collective, with the same options on all ranks. Between hosts heartbeats
  // are UDP datagrams, to the address by which one host knows the other.
  void watch(const WatchOptions& options = {});
  // The step that training is in, for reports.
  void at_step(int64_t step);
  // Time-outs are as they are given from now on (WatchOptions::start_s).
  void started();
  // Where each rank stands, by rank: "pipeline 1, tensor 0". Messages that name ranks say it too.
  void set_places(std::vector<std::string> places);
  // The NUMA node of each rank, on one host (comm/hosts/numa_nodes.h): groups that are made from
  // here on add in host memory inside a node first, and cross between nodes once, where that
  // changes no bit. Empty, as at first: they do not. The same on all ranks.
  void set_numa_nodes(std::vector<int> nodes);
  // Records the collectives of all groups, and the messages of links, as slices: from when this
  // rank came to them until they had ended. Null: no longer, and nothing is being recorded then.
  void record(Timeline* timeline);

  // Waits until all ranks have come here, at the end of a run. Throws PeerFailure if one failed
  // instead. The destructor calls it; run() does so earlier.
  void finish();

  // Tells all ranks of this node that this one cannot go on; those that wait for it stop waiting.
  // Prints "error: <message> (rank r of n)" unless a lower rank failed with the same words. Returns
  // the code to exit with if all ranks failed together, or if this is a guest; else ends the job
  // with MPI_Abort.
  int fail(ExitCode code, std::string_view message);
  int fail(std::exception_ptr error);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The MPI library that is in use: "Open MPI v4.1.4". Also before, and without, a World.
std::string mpi_version();

// What a program's main() returns: `int main(int c, char** v) { return comm::run(c, v, body); }`.
// Makes the World, tells process_log() the rank, has the ranks watch each other (World::watch();
// with a time-out of 0 they do not), and calls body, whose result becomes the exit code. An
// exception ends the job: every rank stops within seconds, one clear line is printed, and mpirun
// returns the code of the first rank that failed: an Error's own, 71 for std::bad_alloc, 70 for
// anything else.
int run(int argc, char** argv, const std::function<int(World&)>& body,
        const WatchOptions& watch = {});
// The same in a program that has started MPI itself: an exception is printed and becomes the
// result, on this rank and on those that it keeps from going on; no process is ended.
int run(const MpiCommunicator& communicator, const std::function<int(World&)>& body,
        const WatchOptions& watch = {});

}  // namespace shale::comm
