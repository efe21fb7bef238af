#pragma once

#include "shale/comm/link/mailbox.h"
#include "shale/comm/node/shared_segment.h"
#include "shale/comm/node/shm_wait.h"

namespace shale::comm {

// Mailbox between two ranks of a node: slots in memory that both map. The sender copies in, the
// receiver out.
class NodeMailbox final : public Mailbox {
 public:
  // Size of the memory that both ends map; it is initially zero.
  static size_t bytes(const LinkSpec& spec);

  NodeMailbox(SharedSegment memory, const LinkSpec& spec, bool sends, const WaitPolicy& policy)
      : memory_(std::move(memory)), spec_(spec), sends_(sends), policy_(policy) {}
  ~NodeMailbox() override;

  std::byte* room() override;
  void put(const Message& message) override;
  bool all_taken() override;
  const Message* next() override;
  const std::byte* values() const override;
  void take() override;
  bool wait(double timeout_s, const std::function<void()>& poll) override;
  std::string told() override;
  void tell(const std::string& report) override;
  bool peer_left() override;

 private:
  struct Box;
  struct End;
  Box& box() const;
  std::byte* slot() const;  // slot of the current message

  SharedSegment memory_;
  LinkSpec spec_;
  bool sends_;
  WaitPolicy policy_;
  uint32_t passed_ = 0;  // messages put, or taken, by this end
};

}  // namespace shale::comm
