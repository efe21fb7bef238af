#include "shale/models/tools/join/head.h"

#include <poll.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/tools/join/frame_stream.h"
#include "shale/models/tools/join/socket_address.h"

namespace shale::models {
namespace {

// Replaces the agent's path in an argument of Open MPI's daemon by a program that exists on every
// node. The daemon checks that its remote shell exists, although it does not use it, and the head's
// folder is not on the node.
std::string for_node(std::string argument, const std::string& agent) {
  constexpr std::string_view kAnyProgram = "/bin/sh";
  for (size_t at = 0; (at = argument.find(agent, at)) != argument.npos;) {
    argument.replace(at, agent.size(), kAnyProgram);
  }
  return argument;
}

}  // namespace

// Asks the head to start the command on the node, and prints its output. If the launcher kills this
// process, its socket closes, and the head ends the command.
int run_agent(int argc, const char* const* argv) {
  const std::filesystem::path folder = std::filesystem::path(argv[0]).parent_path();
  int at = 1;
  while (at < argc && argv[at][0] == '-') ++at;  // options that MPICH adds, such as -x
  if (at + 1 >= argc) throw ConfigError(cat(kAgentName, ": expected a host and a command"));
  std::string start = cat(argv[at], "\n");
  while (++at < argc) start += cat(for_node(argv[at], argv[0]), " ");
  FrameStream head(file_socket((folder / kAgentSocket).string(), /*listens=*/false),
                   FrameStream::kLong);
  head.send(FrameType::kStart, start);
  for (;;) {
    head.exchange();
    while (const auto frame = head.next()) {
      const std::string text = frame->payload.substr(frame->payload.find('\n') + 1);
      if (frame->type == FrameType::kEnded) return static_cast<int>(parse_int(text).value_or(255));
      std::fwrite(text.data(), 1, text.size(), stderr);
    }
    if (head.closed()) return static_cast<int>(ExitCode::kComm);  // the head has lost the node
    pollfd ready{.fd = head.socket(), .events = head.events(), .revents = 0};
    poll(&ready, 1, -1);
  }
}

}  // namespace shale::models
