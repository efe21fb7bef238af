#pragma once

namespace shale::models {

// Requests to stop: SIGTERM (the job is to end), SIGUSR1 and SIGUSR2 (warnings by LSF and by SGE's
// -notify that it will end; mpirun forwards them immediately) and SIGINT. Once this is constructed
// they only set a flag, which training checks between micro-batches; a second SIGINT ends the
// process as usual. SIGXFSZ and SIGPIPE are ignored, as the write that causes them fails with a
// more specific error.
//
// A dedicated thread waits for the signals, and all other threads block them: code that a library
// generates at run time, such as oneDNN's, may keep data below its stack pointer, where a handler
// would overwrite it. Construct it before any other thread is started, and before MPI. It lasts as
// long as the process: schedulers repeat their requests, and one that arrives while a run ends
// would otherwise turn its exit code into a death by signal.
class StopSignals {
 public:
  StopSignals();  // throws std::system_error if no thread can be started
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns the first signal received; 0: none.
  static int received();
};

}  // namespace shale::models
