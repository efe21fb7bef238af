#include "shale/models/plan/time/busy_node.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shale/base/error.h"

namespace shale::models {

BusyNode::BusyNode(int others) {
  for (int i = 0; i < others; ++i) {
    const pid_t pid = fork();
    if (pid < 0) {
      throw UnavailableError(
          cat("plan: cannot start a second process, which the measurement needs: ",
              std::strerror(errno)));
    }
    if (pid > 0) {
      others_.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    others_.clear();
    is_other_ = true;
    return;
  }
}

BusyNode::~BusyNode() {
  if (is_other_) _exit(0);
  for (const pid_t pid : others_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

}  // namespace shale::models
