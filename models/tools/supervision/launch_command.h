#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shale::models {

// Host on which a launcher may start ranks.
struct LaunchHost {
  std::string name;
  // Maximum number of ranks; empty: the number of its cores, as determined by Open MPI.
  std::optional<int64_t> slots = {};
  // Text that names the host in the command (an item of --host) or in the host file (a line).
  std::string text = {};
};

// Training command as typed by a user: "mpirun -np 4 --host a:2,b:2 train_lm --data x", or without
// a launcher. Only the parts that supervision must change are parsed. The training program is the
// first argument whose file name begins with "train_"; earlier arguments belong to mpirun or
// mpiexec if the command starts with one of these.
class LaunchCommand {
 public:
  // Throws ConfigError for an empty command, and for host names that begin with '-', which a remote
  // shell would take for options.
  explicit LaunchCommand(std::vector<std::string> arguments);

  const std::vector<std::string>& arguments() const { return arguments_; }
  bool has_program() const { return program_ < arguments_.size(); }
  // File name of the program without its folder; empty: there is none.
  std::string program_name() const;

  // Returns the value of the training program's --out. Throws what reading its --config throws.
  std::string out_folder() const;
  // Makes training resume: adds --resume auto, or replaces the value of --resume by auto. A folder
  // as the value is meant for the first start only.
  void resume();

  // Returns the hosts of --host or --hostfile; empty if neither is given. Throws ConfigError,
  // MissingInputError.
  std::vector<LaunchHost> hosts() const;
  // Returns the program that starts processes on other hosts: mpirun's plm_rsh_agent, else ssh.
  std::string remote_shell() const;
  // Restricts the command to these hosts, which are a subset of hosts() and have slots. Reduces the
  // number of ranks to one that fits on them and that divides --global-batch. Writes the lines of
  // these hosts to `host_file`, which replaces a host file in the command. Throws UnavailableError
  // if no number of ranks is possible, DiskError.
  void keep_hosts(const std::vector<LaunchHost>& kept, const std::string& host_file);

 private:
  // Value of an option that may occur several times in a range of arguments: the last value, and
  // where it is.
  struct Option {
    size_t index = 0;   // index of the argument that contains the value
    size_t prefix = 0;  // number of characters before the value, such as those of "--out="
    std::string value;
  };
  std::optional<Option> find(size_t begin, size_t end, const std::vector<std::string>& names) const;
  std::optional<Option> program_option(const std::string& name) const;
  std::optional<Option> launcher_option(const std::vector<std::string>& names) const;
  int64_t program_number(const std::string& name, int64_t fallback) const;
  void replace(const Option& option, const std::string& value);

  std::vector<std::string> arguments_;
  size_t program_ = 0;  // index of the training program; the number of arguments if there is none
  bool has_launcher_ = false;
};

}  // namespace shale::models
