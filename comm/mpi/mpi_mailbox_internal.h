#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shale/comm/link/mailbox.h"
#include "shale/comm/mpi_internal.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// State that the mailboxes of a process share: a communicator, and a thread that calls MPI
// repeatedly while there are mailboxes. Messages make progress only inside MPI calls, and a rank
// that computes makes none.
class MpiLinks {
 public:
  explicit MpiLinks(MpiComm comm) : comm_(std::move(comm)) {}
  ~MpiLinks() { stop(); }
  MpiLinks(const MpiLinks&) = delete;
  MpiLinks& operator=(const MpiLinks&) = delete;

  MPI_Comm comm() const { return comm_.get(); }
  void begin_use();
  void end_use();  // the last end_use() stops the thread

 private:
  void stop();
  void thread_main();

  MpiComm comm_;
  int users_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Mailbox between ranks of different nodes. Both ends have slots: messages leave from the sender's
// slots and arrive in the receiver's slots. Each free slot of the receiver has a posted receive.
// The receiver answers each message that it takes, so that the sender knows the free slots.
class MpiMailbox final : public Mailbox {
 public:
  // peer: rank in the communicator of `links`. The link uses tag and tag + 1.
  MpiMailbox(std::shared_ptr<WorldContext> context, std::shared_ptr<MpiLinks> links, int peer,
             int tag, const LinkOptions& options);
  ~MpiMailbox() override;

  // Throws ConfigError if a message with its header has too many bytes for MPI's int.
  static void check_capacity(const LinkSpec& spec);

  std::byte* room() override;
  void put(const Message& message) override;
  bool all_taken() override;
  const Message* next() override;
  const std::byte* values() const override;
  void take() override;
  bool wait(double timeout_s, const std::function<void()>& poll) override;
  std::string told() override;
  void tell(const std::string& report) override;
  bool peer_left() override { return false; }  // unknown here: time-outs and heartbeats tell it

 private:
  // Size of an answer: empty, or a report that ends the use of the link.
  static constexpr size_t kAnswerBytes = 2048;
  struct Slot {
    std::unique_ptr<std::byte[]> data;
    MPI_Request request = MPI_REQUEST_NULL;
    bool arrived = false;
  };
  Slot& slot(uint64_t number) { return slots_[number % slots_.size()]; }
  void post_receive(Slot& slot);
  void post_answer();
  void take_answers();
  bool ready();
  bool meet_receiver();
  bool let_go();  // returns false if MPI may still access the buffers

  std::shared_ptr<WorldContext> context_;
  std::shared_ptr<MpiLinks> links_;
  int peer_;
  int tag_;
  LinkOptions options_;
  // Memory that MPI accesses. It outlives the mailbox if MPI may still access it.
  struct Buffers {
    std::vector<Slot> slots;
    std::array<char, kAnswerBytes> answer{};
    std::string report;  // report that this end sends
  };
  std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
  std::vector<Slot>& slots_ = buffers_->slots;
  MPI_Request answer_request_ = MPI_REQUEST_NULL;
  MPI_Request report_request_ = MPI_REQUEST_NULL;
  uint64_t passed_ = 0;    // messages that this end has put or taken
  uint64_t answered_ = 0;  // messages that the receiver has taken
  std::string told_;
};

}  // namespace shale::comm
