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

// Runs a command of the user (--after-save, --before-resume) on a separate thread, as /bin/sh -c
// COMMAND. Its environment is that of this process without the variables of MPI launchers, and with
// SHALE_OUT, SHALE_HOST and the variables given to start(). A log file gets its output. A command
// that fails is tried a few times, with pauses.
class HostCommand {
 public:
  struct Options {
    std::string flag;     // for messages, such as "--after-save"
    std::string command;  // text for /bin/sh -c
    std::string out;      // folder of the run
    std::string log;      // file for the command's output
    int tries = 5;
    // Seconds before the second try; each further pause is four times as long.
    double first_pause_s = 2;
  };
  explicit HostCommand(Options options);
  // Ends a command that is running.
  ~HostCommand();
  HostCommand(const HostCommand&) = delete;
  HostCommand& operator=(const HostCommand&) = delete;

  // Runs the command for this checkpoint after the command that is running has ended. Replaces a
  // checkpoint that is still waiting for its command, and stops retries for earlier ones.
  // variables: "NAME=value".
  void start(int64_t step, std::vector<std::string> variables = {});
  bool is_busy() const;
  // Returns true if the command for the checkpoint of this step is running or waiting.
  bool uses(int64_t step) const;
  // Returns why the last finished try of a command failed; empty: it succeeded, or there was none.
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
  std::thread thread_;  // must be the last member, because it uses the other members
};

}  // namespace shale::models
