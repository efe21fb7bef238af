#include "shale/models/tools/join/node.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "shale/base/clock.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/parse.h"
#include "shale/models/tools/join/frame_stream.h"
#include "shale/models/tools/join/handshake.h"
#include "shale/models/tools/join/hmac_sha256.h"
#include "shale/models/tools/supervision/child_process.h"
#include "shale/models/tools/supervision/say.h"
#include "shale/models/tools/supervision/supervised_process.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

// Maximum duration of connecting, and of each step of the handshake.
constexpr double kConnect_s = 5;
constexpr double kRetry_s = 1;  // time between attempts to reach the head

// Command that the launcher has started on this host, in a new process group.
class Command {
 public:
  Command(std::string number, const std::string& text) : number_(std::move(number)) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw UnavailableError(cat("pipe: ", std::strerror(errno)));
    pid_ = fork();
    if (pid_ == 0) become(text, ends[1]);
    close(ends[1]);
    output_ = ends[0];
    if (pid_ < 0) throw UnavailableError(cat("fork: ", std::strerror(errno)));
    fcntl(output_, F_SETFL, O_NONBLOCK);
  }
  ~Command() { close(output_); }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const std::string& number() const { return number_; }
  int output() const { return output_; }
  void terminate() const { kill(-pid_, SIGTERM); }

  void forward_output(FrameStream& head) const {
    char part[4096];
    for (ssize_t got = 0; (got = read(output_, part, sizeof part)) > 0;) {
      head.send(FrameType::kOutput,
                cat(number_, "\n", std::string_view(part, static_cast<size_t>(got))));
    }
  }
  // Returns the exit code once the command has ended.
  std::optional<int> ended() const {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return {};
    return exit_code_of(status);
  }

 private:
  [[noreturn]] static void become(const std::string& text, int output) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execl("/bin/sh", "sh", "-c", text.c_str(), nullptr);
    _exit(127);
  }

  std::string number_;
  pid_t pid_ = -1;
  int output_ = -1;
};

// Connection to the head.
class Session {
 public:
  Session(FrameStream& head, SupervisedProcess& process, int signals)
      : head_(head), process_(process), signals_(signals) {}

  // Returns the run's exit code; nullopt if the connection is lost, with the reason in `why`.
  std::optional<int> serve(std::string& why) {
    try {
      for (;;) {
        wait();
        head_.exchange();
        while (const auto frame = head_.next()) {
          if (const auto code = take(*frame)) return end(*code);
        }
        if (const auto code = take_signals()) return end(*code);
        look_after_command();
        const bool alive = head_.keep_alive();
        why = head_.closed() ? "its connection closed" : "it does not answer";
        if (head_.closed() || !alive) break;
      }
    } catch (const CommError& error) {
      why = error.what();
    }
    end(0);
    return {};
  }

 private:
  void wait() {
    pollfd ready[] = {{.fd = head_.socket(), .events = head_.events(), .revents = 0},
                      {.fd = signals_, .events = POLLIN, .revents = 0},
                      {.fd = command_ ? command_->output() : -1, .events = POLLIN, .revents = 0}};
    poll(ready, std::size(ready), 500);
  }

  // Returns the run's exit code if the frame says that it has ended.
  std::optional<int> take(const Frame& frame) {
    const size_t line = frame.payload.find('\n');
    const std::string number = frame.payload.substr(0, line);
    switch (frame.type) {
      case FrameType::kStart:
        end(0);  // ends an earlier command, for whose end the head did not wait
        command_.emplace(number, frame.payload.substr(line + 1));
        break;
      case FrameType::kClose:
        if (command_ && command_->number() == number) end(0);
        break;
      case FrameType::kRunEnded: return static_cast<int>(parse_int(frame.payload).value_or(255));
      default: break;
    }
    return {};
  }

  // Returns an exit code if this process must end at once.
  std::optional<int> take_signals() {
    signalfd_siginfo info{};
    if (process_.stop_requested()) return static_cast<int>(ExitCode::kInterrupted);
    while (read(signals_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      if (!command_ || asked_) return static_cast<int>(ExitCode::kInterrupted);
      asked_ = true;
      say("asked to stop: the run saves and ends; a second signal ends this node at once", "join");
      head_.send(FrameType::kStop);
    }
    return {};
  }

  void look_after_command() {
    if (!command_) return;
    command_->forward_output(head_);
    const auto code = command_->ended();
    if (!code) return;
    command_->forward_output(head_);
    head_.send(FrameType::kEnded, cat(command_->number(), "\n", *code));
    command_.reset();
    process_.end_leftovers();
  }

  int end(int code) {
    if (command_) {
      command_->terminate();
      process_.end_leftovers();
      command_.reset();
    }
    return code;
  }

  FrameStream& head_;
  SupervisedProcess& process_;
  int signals_;
  bool asked_ = false;
  std::optional<Command> command_;
};

// Returns the next frame of the handshake; nullopt, with `why`, if none comes in time.
std::optional<Frame> await_frame(FrameStream& head, std::string& why) {
  const auto start = Clock::now();
  while (seconds_since(start) < kConnect_s) {
    head.exchange();
    if (auto frame = head.next()) return frame;
    if (head.closed()) {
      why = "the connection closed during the handshake";
      return {};
    }
    pollfd ready{.fd = head.socket(), .events = head.events(), .revents = 0};
    poll(&ready, 1, 100);
  }
  why = "it accepts connections, but does not answer like the head of a run; check the port";
  return {};
}

// Returns true once head and node have proved that they know the token.
bool shake_hands(FrameStream& head, const std::string& token, const Hello& hello,
                 std::string& why) {
  const auto challenge = await_frame(head, why);
  if (!challenge) return false;
  if (challenge->type != FrameType::kChallenge || !is_challenge(challenge->payload)) {
    throw ConfigError(
        "the head uses another version of the protocol; install the same build of Shale on both");
  }
  const Answer own = answer(token, challenge->payload, hello);
  head.send(FrameType::kHello, own.payload);
  const auto reply = await_frame(head, why);
  if (!reply) return false;
  if (reply->type == FrameType::kRefused && !reply->payload.empty()) {
    why = excerpt(reply->payload.substr(1), 300);
    if (reply->payload.front() == '0') throw ConfigError(cat("the head refuses this node: ", why));
    return false;
  }
  if (!same_digest(reply->payload, own.secrets.head_proof)) {
    throw ConfigError("the head does not know this node's SHALE_TOKEN; set the same on all nodes");
  }
  head.set_keys(own.secrets.to_head, own.secrets.to_node);
  return true;
}

}  // namespace

int run_node(const NodeOptions& options) {
  const std::string token = take_token();
  const Hello hello{.build = this_build(),
                    .host = host_name(),
                    .rank = options.rank,
                    .gpus = std::ssize(visible_gpus().ids),
                    .cpus = cpu_counts().node,
                    .networks = own_networks(),
                    .waits = options.waits};
  SupervisedProcess process;
  const int signals = process.signal_descriptor();
  const std::string there = cat(options.head.host, ":", options.head.port);
  auto start = Clock::now(), printed = start - std::chrono::hours(1);
  std::string why;
  while (!process.stop_requested()) {
    const int socket = connect_to(options.head, kConnect_s, why);
    if (socket >= 0) {
      FrameStream head(socket);
      bool joined = false;
      try {
        joined = shake_hands(head, token, hello, why);
      } catch (const CommError& error) {
        throw ConfigError(cat(there, " is not the head of a run: ", error.what()));
      }
      if (joined) {
        say(cat("joined the run of ", there), "join");
        if (const auto code = Session(head, process, signals).serve(why)) return *code;
        start = Clock::now();
      }
    }
    if (seconds_since(start) > options.limit_s) {
      throw UnavailableError(cat("shale join: no run at ", there, " after --join-timeout ",
                                 options.limit_s, " s: ", why));
    }
    if (seconds_since(printed) > kProgress_s)
      say(cat("waiting for the head at ", there, ": ", why), "join");
    if (seconds_since(printed) > kProgress_s) printed = Clock::now();
    process.sleep(kRetry_s);
  }
  return static_cast<int>(ExitCode::kInterrupted);
}

}  // namespace shale::models
