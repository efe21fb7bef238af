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

// Mesh ranks along one axis, `members` of them in each process of a group: member m of process p is
// the (p members + m)-th. What all members of a process bring goes through one collective of the
// group.
class MeshLine {
 public:
  // Options of the collectives; name: for reports, "tensor".
  struct Options {
    std::string name;
    bool overlap = true;  // what begins is under way while the caller goes on
  };
  // The group outlives this, or goes with it. ranks: of this process; null: one member.
  MeshLine(ProcessGroup& group, HostedRanks* ranks, int members, const Options& options);
  MeshLine(std::shared_ptr<ProcessGroup> group, HostedRanks* ranks, int members,
           const Options& options);

  ProcessGroup& group() const { return group_; }
  int members() const { return members_; }
  int size() const { return group_.size() * members_; }  // mesh ranks in all
  int rank_of(int member) const { return group_.rank() * members_ + member; }

 private:
  friend class HostedExchange;

  // What a collective is for; its name, as "tensor gather", is its tag.
  enum class Of : uint8_t { kGather, kSum, kParts, kCounts, kHeads, kRing };
  const std::string& name_of(Of of) const { return names_[static_cast<size_t>(of)]; }

  // One collective: what each member has brought, and gets.
  struct Round {
    std::vector<Tensor> x, into, out;
    std::function<void()> finish;  // writes `out`, once the works have ended
    std::vector<Work> works;       // they end first

    Tensor take(int member);
  };
  // act: starts the collective, when all members have come with equal `what`.
  std::shared_ptr<Round> join(int member, std::string_view what, const Tensor& x,
                              const Tensor& into, const std::function<void(Round&)>& act);
  void check_alike(std::string_view what, const std::vector<Tensor>& x) const;

  std::shared_ptr<ProcessGroup> own_group_;  // or null
  ProcessGroup& group_;
  const int members_;
  const bool overlap_;
  std::array<std::string, 6> names_;
  std::unique_ptr<HostedRanks::Meeting> meeting_;  // null: one member
  std::shared_ptr<Round> open_;                    // that some have joined
};

// What one mesh rank has of a line.
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
  // Rows of members that share a process come at once.
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
