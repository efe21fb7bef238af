#include "shale/models/tools/supervision/launch_command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

const std::vector<std::string> kRanks = {"-np", "--np", "-n", "--n", "-c"};
const std::vector<std::string> kHosts = {"--host", "-host", "-H", "-hosts"};
const std::vector<std::string> kHostFiles = {"--hostfile", "-hostfile", "--machinefile",
                                             "-machinefile"};

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

int64_t number(std::string_view what, const std::string& text) {
  const auto value = parse_int(text);
  if (!value || *value < 1) {
    throw ConfigError(cat(what, ": expected a number from 1, found '", excerpt(text), "'"));
  }
  return *value;
}

LaunchHost checked(LaunchHost host) {
  if (!host.name.empty() && host.name.front() != '-') return host;
  throw ConfigError(cat("host '", excerpt(host.name),
                        "': expected a name that does not begin with '-': a remote shell would "
                        "take it for an option"));
}

// Parses "a:2,b,c:*"; a host without a number has one slot.
std::vector<LaunchHost> parse_host_list(const std::string& text) {
  std::vector<LaunchHost> hosts;
  std::istringstream list(text);
  std::string item;
  while (std::getline(list, item, ',')) {
    const size_t colon = item.find(':');
    const std::string slots = colon == item.npos ? "1" : item.substr(colon + 1);
    LaunchHost host{.name = item.substr(0, colon), .text = item};
    if (slots != "*") host.slots = number("--host", slots);
    hosts.push_back(checked(std::move(host)));
  }
  return hosts;
}

// Reads a host file. A line has a name, then pairs such as "slots=4" or "max_slots = 8"; comments
// begin with '#'.
std::vector<LaunchHost> read_host_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw MissingInputError(cat("--hostfile: ", path, " cannot be read"));
  std::vector<LaunchHost> hosts;
  std::string line;
  while (std::getline(file, line)) {
    LaunchHost host{.text = line};
    std::replace(line.begin(), line.end(), '=', ' ');
    std::istringstream words(line.substr(0, line.find('#')));
    if (!(words >> host.name)) continue;
    std::optional<int64_t> most;
    for (std::string key, value; words >> key >> value;) {
      if (key == "slots" || key == "count" || key == "cpu") host.slots = number(path, value);
      if (key == "max_slots" || key == "max-slots") most = number(path, value);
    }
    if (!host.slots) host.slots = most;  // as in Open MPI
    hosts.push_back(checked(std::move(host)));
  }
  return hosts;
}

}  // namespace

LaunchCommand::LaunchCommand(std::vector<std::string> arguments)
    : arguments_(std::move(arguments)) {
  if (arguments_.empty()) throw ConfigError("expected a command after --, found nothing");
  const auto program =
      std::find_if(arguments_.begin(), arguments_.end(), [](const std::string& argument) {
        return argument.front() != '-' && file_name(argument).starts_with("train_");
      });
  program_ = static_cast<size_t>(program - arguments_.begin());
  const std::string first = file_name(arguments_.front());
  has_launcher_ = first.starts_with("mpirun") || first.starts_with("mpiexec") || first == "orterun";
  static_cast<void>(hosts());  // throws if a host name is invalid
}

std::optional<LaunchCommand::Option> LaunchCommand::find(
    size_t begin, size_t end, const std::vector<std::string>& names) const {
  std::optional<Option> found;
  for (size_t i = begin; i < end; ++i) {
    for (const std::string& name : names) {
      if (arguments_[i] == name && i + 1 < end) {
        found = {.index = i + 1, .prefix = 0, .value = arguments_[i + 1]};
      } else if (name.starts_with("--") && arguments_[i].starts_with(name + "=")) {
        found = {
            .index = i, .prefix = name.size() + 1, .value = arguments_[i].substr(name.size() + 1)};
      }
    }
  }
  return found;
}

std::optional<LaunchCommand::Option> LaunchCommand::program_option(const std::string& name) const {
  return find(program_, arguments_.size(), {name});
}

std::optional<LaunchCommand::Option> LaunchCommand::launcher_option(
    const std::vector<std::string>& names) const {
  return has_launcher_ ? find(1, program_, names) : std::nullopt;
}

void LaunchCommand::replace(const Option& option, const std::string& value) {
  std::string& argument = arguments_[option.index];
  argument = argument.substr(0, option.prefix) + value;
}

std::string LaunchCommand::program_name() const {
  return has_program() ? file_name(arguments_[program_]) : "";
}

std::string LaunchCommand::out_folder() const {
  if (const auto out = program_option("--out")) return out->value;
  std::string folder = RunConfig().out;
  const auto config = program_option("--config");
  return config ? JsonObject::load(config->value).text("out", folder) : folder;
}

void LaunchCommand::resume() {
  if (!has_program()) return;
  if (const auto option = program_option("--resume")) {
    replace(*option, "auto");
  } else {
    arguments_.insert(arguments_.end(), {"--resume", "auto"});
  }
}

std::vector<LaunchHost> LaunchCommand::hosts() const {
  if (const auto list = launcher_option(kHosts)) return parse_host_list(list->value);
  if (const auto file = launcher_option(kHostFiles)) return read_host_file(file->value);
  return {};
}

std::string LaunchCommand::remote_shell() const {
  for (size_t i = 1; has_launcher_ && i + 2 < program_; ++i) {
    const bool is_mca = arguments_[i] == "--mca" || arguments_[i] == "-mca";
    if (is_mca && arguments_[i + 1] == "plm_rsh_agent") return arguments_[i + 2];
  }
  const char* const chosen = std::getenv("OMPI_MCA_plm_rsh_agent");
  return chosen != nullptr && *chosen != '\0' ? chosen : "ssh";
}

int64_t LaunchCommand::program_number(const std::string& name, int64_t fallback) const {
  const auto option = program_option(name);
  return option ? number(name, option->value) : fallback;
}

void LaunchCommand::keep_hosts(const std::vector<LaunchHost>& kept, const std::string& host_file) {
  std::string list, lines;
  int64_t slots = 0;
  for (const LaunchHost& host : kept) {
    if (!host.slots) throw InternalError(cat("keep_hosts: expected slots for ", host.name));
    slots += *host.slots;
    list += cat(list.empty() ? "" : ",", host.text);
    lines += cat(host.text, "\n");
  }
  const auto wanted = launcher_option(kRanks);
  int64_t ranks = wanted ? std::min(slots, number("-np", wanted->value)) : slots;
  if (program_option("--global-batch")) {
    const int64_t batch = program_number("--global-batch", 0);
    const int64_t micro = program_number("--micro-batch", RunConfig().micro_batch);
    while (ranks > 0 && batch % (micro * ranks) != 0) --ranks;
  }
  if (ranks == 0) {
    throw UnavailableError(cat("no ranks can run on the ", kept.size(), " hosts that respond (",
                               list, ") with this --global-batch and --micro-batch"));
  }
  if (const auto given = launcher_option(kHosts)) {
    replace(*given, list);
  } else if (const auto file = launcher_option(kHostFiles)) {
    write_file_atomically(host_file, lines);
    replace(*file, host_file);
  }
  if (wanted) return replace(*wanted, cat(ranks));
  arguments_.insert(arguments_.begin() + 1, {kRanks.front(), cat(ranks)});
  program_ += 2;
}

}  // namespace shale::models
