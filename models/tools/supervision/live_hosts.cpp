#include "shale/models/tools/supervision/live_hosts.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/parse.h"
#include "shale/models/tools/supervision/child_process.h"
#include "shale/models/tools/supervision/say.h"
#include "shale/models/training/checks/disk_room.h"

namespace shale::models {
namespace {

bool is_this_host(const std::string& name) {
  const std::string own = host_name();
  return name == "localhost" || name.starts_with("127.") || name == own ||
         name == own.substr(0, own.find('.'));
}

// Command that prints the cores of a host: a line for each processor with its core, then the number
// of usable processors.
constexpr const char* kAskForCores = "lscpu -p=Core,Socket; nproc";

// Returns the number of usable cores in the output of kAskForCores; 0: invalid output.
int64_t cores_in(const std::string& answer) {
  std::set<std::string> cores;
  int64_t usable = 0;
  std::istringstream lines(answer);
  for (std::string line; std::getline(lines, line);) {
    if (const auto count = parse_int(line)) {
      usable = *count;
    } else if (line.find_first_not_of("0123456789,") == line.npos && !line.empty()) {
      cores.insert(line);
    }
  }
  return cores.empty() ? usable : std::min(usable, static_cast<int64_t>(cores.size()));
}

}  // namespace

LiveHosts::LiveHosts(double probe_timeout_s)
    : probe_timeout_s_(probe_timeout_s),
      host_file_(cat(temporary_folder(), "/shale-hosts.", getpid())) {}

LiveHosts::~LiveHosts() {
  std::error_code error;
  std::filesystem::remove(host_file_, error);
}

void LiveHosts::note_broken_gpus(const std::string& message) {
  for (size_t at = 0; (at = message.find(kBrokenGpu, at)) != message.npos; ++at) {
    const size_t host = message.find(kOfHost, at);
    if (host == message.npos) return;
    const size_t begin = host + kOfHost.size();
    broken_.insert(message.substr(begin, message.find_first_of(", ;\n", begin) - begin));
  }
}

bool LiveHosts::is_broken(const std::string& host) const {
  return std::any_of(broken_.begin(), broken_.end(), [&](const std::string& name) {
    return host == name || host == name.substr(0, name.find('.')) ||
           (name == host_name() && is_this_host(host));
  });
}

bool LiveHosts::answers(const LaunchCommand& command, LaunchHost& host) const {
  const bool here = is_this_host(host.name);
  if (here && host.slots) return true;
  std::vector<std::string> probe = {"sh", "-c", kAskForCores};
  if (!here) {
    const std::string shell = command.remote_shell();
    probe = {shell};
    if (std::filesystem::path(shell).filename() == "ssh") {
      probe.insert(probe.end(), {"-o", "BatchMode=yes", "-o",
                                 cat("ConnectTimeout=", std::ceil(probe_timeout_s_ / 2))});
    }
    probe.insert(probe.end(), {host.name, host.slots ? "true" : kAskForCores});
  }
  const ChildResult result = run_command(probe, probe_timeout_s_);
  if (result.code != 0) return false;
  const int64_t cores = host.slots ? 0 : cores_in(result.output);
  if (cores > 0) host.slots = cores;
  return true;
}

void LiveHosts::drop_others(LaunchCommand& command) const {
  const std::vector<LaunchHost> hosts = command.hosts();
  std::vector<LaunchHost> alive;
  for (LaunchHost host : hosts) {
    if (is_broken(host.name)) {
      say(cat("host ", host.name, " has a broken GPU; going on without it"));
    } else if (answers(command, host)) {
      alive.push_back(host);
    } else {
      say(cat("host ", host.name, " does not answer; going on without it"));
    }
  }
  if (alive.empty()) {
    throw UnavailableError(
        "shale run: no host responds and has working GPUs; check the hosts and ssh");
  }
  if (alive.size() == hosts.size()) return;
  for (const LaunchHost& host : alive) {
    if (host.slots) continue;
    throw ConfigError(cat("--elastic: expected 'slots=' for host ", host.name,
                          ", or its cores in answer to '", kAskForCores, "', found neither"));
  }
  command.keep_hosts(alive, host_file_);
}

}  // namespace shale::models
