#pragma once

namespace shale::models {

// Handles requests to stop: SIGTERM (the job must end), SIGUSR1 and SIGUSR2 (warnings from LSF, and
// from SGE's -notify, that it will end; mpirun forwards them immediately) and SIGINT. Once this
// object is constructed, they only set a flag, which training checks between micro-batches. A
// second SIGINT ends the process as usual. SIGXFSZ and SIGPIPE are ignored, because the write that
// causes them fails with a more specific error.
//
// A dedicated thread waits for the signals, and all other threads block them. A signal handler
// would not be safe: code that a library generates at run time, such as oneDNN's, may keep data
// below its stack pointer, where a handler would overwrite it. Construct this object before any
// other thread is started, and before MPI. It lasts as long as the process. Schedulers repeat their
// requests, and one that arrives while a run ends would otherwise turn its exit code into a death
// by signal.
class StopSignals {
 public:
  StopSignals();  // throws std::system_error if no thread can be started
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns the first signal received; 0: none.
  static int received();
};

}  // namespace shale::models
