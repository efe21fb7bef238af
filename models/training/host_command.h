#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shale::models {

// Runs a command of the user, of --after-save or --before-resume, on a separate thread: /bin/sh
// -c COMMAND, with the environment of this process but without the variables of MPI launchers, and
// with SHALE_OUT, SHALE_HOST and what start() gives. Its output is appended to a log file. A
// command that fails is tried again after a while, a few times.
class HostCommand {
 public:
  struct Options {
    std::string flag;     // "--after-save", for messages
    std::string command;  // text for /bin/sh -c
    std::string out;      // folder of the run
    std::string log;      // file for the command's output
    int tries = 5;
    double first_pause_s = 2;  // seconds before the second try; grows fourfold for each further try
  };
  explicit HostCommand(Options options);
  // Ends a command that is running.
  ~HostCommand();
  HostCommand(const HostCommand&) = delete;
  HostCommand& operator=(const HostCommand&) = delete;

  // Runs the command for this checkpoint, once the command that is running has ended. Replaces a
  // checkpoint that is still waiting, and stops retries of a command that failed. variables:
  // "NAME=value".
  void start(int64_t step, std::vector<std::string> variables = {});
  bool is_busy() const;
  // Returns true if the command for the checkpoint of this step is running or waiting.
  bool uses(int64_t step) const;
  // Returns the failure of the last finished try of a command; empty: it succeeded, or there is
  // none.
  std::string failure() const;

 private:
  struct Job {
    int64_t step = 0;
    std::vector<std::string> variables;
  };
  void work();
  void run(const Job& job, std::unique_lock<std::mutex>& lock);
  std::string run_once(const Job& job, std::unique_lock<std::mutex>& lock);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Job> waiting_;
  std::optional<int64_t> running_;  // step whose command is running
  std::string failure_;
  bool is_ending_ = false;
  std::thread thread_;  // the last member: uses the others
};

}  // namespace shale::models
