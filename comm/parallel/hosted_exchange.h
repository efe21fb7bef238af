#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/parallel/hosted_ranks.h"
#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/comm/process_group.h"

namespace shale::comm {

// Mesh ranks along one axis. Each process of a group has `members` of them: member m of process p
// has the index p * members + m. One collective of the group carries the data of all members.
class MeshLine {
 public:
  // name: prefix of collective tags, such as "tensor".
  struct Options {
    std::string name;
    bool overlap = true;  // overlap begin_...() collectives with the caller's work
  };
  // The group must outlive this object, or is owned by it. ranks: the mesh ranks in this process;
  // null if there is only one.
  MeshLine(ProcessGroup& group, HostedRanks* ranks, int members, const Options& options);
  MeshLine(std::shared_ptr<ProcessGroup> group, HostedRanks* ranks, int members,
           const Options& options);

  ProcessGroup& group() const { return group_; }
  int members() const { return members_; }
  int size() const { return group_.size() * members_; }  // number of mesh ranks
  int rank_of(int member) const { return group_.rank() * members_ + member; }

 private:
  friend class HostedExchange;

  // Purpose of a collective. Its name, such as "tensor gather", is the collective's tag.
  enum class Of : uint8_t { kGather, kSum, kParts, kCounts, kHeads, kRing };
  const std::string& name_of(Of of) const { return names_[static_cast<size_t>(of)]; }

  // State of one collective: the inputs and outputs of each member.
  struct Round {
    std::vector<Tensor> x, into, out;
    std::function<void()> finish;  // called after the works have ended; writes `out`
    std::vector<Work> works;       // collectives to wait for before `finish`

    Tensor take(int member);
  };
  // Adds a member to the collective `what`. Calls `act`, which starts it, when all have joined.
  std::shared_ptr<Round> join(int member, std::string_view what, const Tensor& x,
                              const Tensor& into, const std::function<void(Round&)>& act);
  void check_alike(std::string_view what, const std::vector<Tensor>& x) const;

  std::shared_ptr<ProcessGroup> own_group_;  // null: the caller owns the group
  ProcessGroup& group_;
  const int members_;
  const bool overlap_;
  std::array<std::string, 6> names_;
  std::unique_ptr<HostedRanks::Meeting> meeting_;  // null: the process has one member
  std::shared_ptr<Round> open_;                    // round that some members have joined
};

// Exchange of one mesh rank over a MeshLine.
class HostedExchange : public Exchange {
 public:
  HostedExchange(std::shared_ptr<MeshLine> line, int member);

  Tensor gather(const Tensor& slice) override;
  Tensor sum_slices(const Tensor& part) override;
  void gather_parts(const Tensor& all) override;
  void add_counts(const Tensor& counts) override;
  Tensor all_to_all(const Tensor& slices) override;
  Arrival begin_gather(const Tensor& slice) override;
  Arrival begin_sum_slices(const Tensor& part) override;
  Arrival begin_gather_parts(const Tensor& all) override;
  Arrival begin_shift(const Tensor& x, const Tensor& into, int by, ShiftOf of) override;
  Arrival begin_pass(const Tensor& x) override;
  // True if a process has several members: the rows of all its members then arrive together.
  bool rows_come_at_once() const override { return ranks() == 1 || line_->members() > 1; }

 private:
  using Round = MeshLine::Round;
  using Of = MeshLine::Of;
  Arrival meet(std::string_view what, const Tensor& x, const Tensor& into,
               const std::function<void(Round&)>& act);
  CollectiveOptions options_of(const Tensor& x, Of of, bool async) const;
  Arrival gathered(const Tensor& slice, bool async);
  Arrival summed(const Tensor& part, bool async);
  Arrival parts_gathered(const Tensor& all, bool async);
  void shift(Round& round, int by, const CollectiveOptions& options) const;

  const std::shared_ptr<MeshLine> line_;
  const int member_;
};

}  // namespace shale::comm
