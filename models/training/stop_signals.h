#pragma once

namespace shale::models {

// Requests from outside to stop: SIGTERM (a job that is to end), SIGUSR1 (a warning that it will;
// mpirun passes it on at once) and SIGINT. From construction on they only set a flag, at which
// training looks when a step ends; a second SIGINT ends the process as usual. SIGXFSZ and SIGPIPE
// are ignored: the write that causes them fails with an error, which says more.
//
// A thread of its own waits for them, and all others block them: code that a library makes at run
// time, as oneDNN's, may keep data below its stack pointer, where a handler would overwrite it. To
// be made before any other thread, and before MPI starts. It lasts as long as the process:
// schedulers repeat their requests, and one that came while a run ends would else turn its exit
// code into a death by signal.
class StopSignals {
 public:
  StopSignals();  // throws std::system_error if there can be no thread
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first that has come; 0: none has.
  static int received();
};

}  // namespace shale::models
