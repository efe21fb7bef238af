#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shale::models {

// A host that a launcher may start ranks on.
struct LaunchHost {
  std::string name;
  // Ranks that it takes; nothing: as many as it has cores, which Open MPI finds out.
  std::optional<int64_t> slots = {};
  std::string text = {};  // as the command has it: an item of --host, a line of the host file
};

// A command that starts training, as a user typed it: "mpirun -np 4 --host a:2,b:2 train_lm --data
// x", or without a launcher. It is read as far as supervision must change it: the training program
// is the first argument whose file name begins with "train_"; what is before it belongs to mpirun
// or mpiexec if the command starts with one of these.
class LaunchCommand {
 public:
  // Throws ConfigError for an empty command, and for hosts whose names begin with '-', which a
  // remote shell would take for options.
  explicit LaunchCommand(std::vector<std::string> arguments);

  const std::vector<std::string>& arguments() const { return arguments_; }
  bool has_program() const { return program_ < arguments_.size(); }
  std::string program_name() const;  // without its folder; empty if there is none

  // Where training writes to: its --out. Throws like reading its --config does.
  std::string out_folder() const;
  // Makes training go on where it was: --resume auto in place of none, or in addition. A --resume
  // that names a folder counts only for the first start, so it is replaced too.
  void resume();

  // From --host or --hostfile; empty if there is neither. Throws ConfigError, MissingInputError.
  std::vector<LaunchHost> hosts() const;
  // What starts programs on other hosts: mpirun's plm_rsh_agent, else ssh.
  std::string remote_shell() const;
  // Leaves only these hosts, of those of hosts() and with slots, and no more ranks than they take:
  // at most the given number, and so that --global-batch can still be shared out. Where the command
  // has a host file it gets `host_file` in its place, which is written: the lines of these hosts.
  // Throws UnavailableError if no number of ranks will do, DiskError.
  void keep_hosts(const std::vector<LaunchHost>& kept, const std::string& host_file);

 private:
  // The value of the last of these options in [begin, end), and where it is.
  struct Option {
    size_t index = 0;   // of the argument that has the value
    size_t prefix = 0;  // characters before the value: of "--out="
    std::string value;
  };
  std::optional<Option> find(size_t begin, size_t end, const std::vector<std::string>& names) const;
  std::optional<Option> program_option(const std::string& name) const;
  std::optional<Option> launcher_option(const std::vector<std::string>& names) const;
  int64_t program_number(const std::string& name, int64_t fallback) const;
  void replace(const Option& option, const std::string& value);

  std::vector<std::string> arguments_;
  size_t program_ = 0;  // index of the training program, or the number of arguments
  bool has_launcher_ = false;
};

}  // namespace shale::models
