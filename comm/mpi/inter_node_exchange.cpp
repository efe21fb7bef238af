// All-to-alls of inter_node_internal.h: shared memory inside a node, pair by pair between nodes.

#include <algorithm>
#include <cstring>

#include "shale/comm/mpi/inter_node_internal.h"

namespace shale::comm {
namespace {

// A message has at most kMessageBytes. Several messages are in flight at once, so that short slices
// overlap: no more are added once they have kWindowBytes (the window).
constexpr int64_t kMessageBytes = 1 << 20;
constexpr int64_t kWindowBytes = 4 << 20;

// All messages that a rank sends to, or receives from, the other ranks, peer after peer. A Piece is
// the part of a slice in one message.
class Pieces {
 public:
  struct Piece {
    int rank = 0;
    int64_t offset = 0;  // byte offset in the user's buffer
    int64_t bytes = 0;
    uint64_t key = 0;  // sort key: step, then number of the piece
  };
  Pieces(const std::vector<int>& peers, const std::vector<int64_t>& counts,
         const std::vector<int64_t>& offsets, int64_t element_bytes) {
    for (size_t i = 0; i < peers.size(); ++i) {
      const auto rank = static_cast<size_t>(peers[i]);
      const int64_t end = (offsets[rank] + counts[rank]) * element_bytes;
      uint64_t key = static_cast<uint64_t>(i) << 32;
      for (int64_t at = offsets[rank] * element_bytes; at < end; at += kMessageBytes, ++key) {
        pieces_.push_back({peers[i], at, std::min(kMessageBytes, end - at), key});
      }
    }
  }

  bool done() const { return next_ == pieces_.size(); }
  uint64_t key() const { return done() ? ~uint64_t{0} : pieces_[next_].key; }
  Piece take() { return pieces_[next_++]; }

 private:
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

}  // namespace

void InterNode::run_all_to_all(const CollectiveCall& call, uint64_t sequence, bool blocking) {
  // This sync tells the ranks that are on no rail whether all nodes agree.
  channel_.sync(current_, blocking);
  node_.exchange().finish(call, sequence, current_, blocking);
  exchange_with_other_nodes(call);
  channel_.sync(current_, blocking);
}

// In step t a rank sends to the t-th rank after it and receives from the t-th rank before it.
// Messages are ordered by step, then by their number in the step. A window is a range of this order
// that ends when it is full, with all its sends and receives. Windows of different ranks may end at
// different messages.
//
// This cannot deadlock: all messages before the first undelivered one are done, so it is in the
// window of its sender and in that of its receiver. The buffers belong to this object, which
// outlives requests that a failure leaves behind.
void InterNode::exchange_with_other_nodes(const CollectiveCall& call) {
  const int ranks = static_cast<int>(topology_.world_ranks.size());
  const auto& locals = topology_.local_ranks();
  const int me = locals[static_cast<size_t>(topology_.local)];
  const auto remote = [&](int rank) {
    return std::find(locals.begin(), locals.end(), rank) == locals.end();
  };
  std::vector<int> to, from;
  for (int t = 1; t < ranks; ++t) {
    // Also lists the ranks of this node, without data, so that steps match on both sides.
    to.push_back((me + t) % ranks);
    from.push_back((me - t + ranks) % ranks);
  }
  SliceTable slices = slices_of(call, ranks);
  for (int r = 0; r < ranks; ++r) {
    if (remote(r)) continue;
    slices.in_counts[static_cast<size_t>(r)] = slices.out_counts[static_cast<size_t>(r)] = 0;
  }
  const int64_t size = dtype_size(call.in.dtype);
  Pieces sends(to, slices.in_counts, slices.in_offsets, size);
  Pieces receives(from, slices.out_counts, slices.out_offsets, size);
  while (!sends.done() || !receives.done()) {
    send_buffer_.resize(kWindowBytes + kMessageBytes);
    receive_buffer_.resize(kWindowBytes + kMessageBytes);
    std::vector<Transfer> outgoing, incoming;
    std::vector<Pieces::Piece> arriving;
    int64_t used = 0;
    while (used < kWindowBytes && !(sends.done() && receives.done())) {
      const uint64_t key = std::min(sends.key(), receives.key());
      int64_t longer = 0;
      if (sends.key() == key) {
        const Pieces::Piece piece = sends.take();
        std::memcpy(send_buffer_.data() + used,
                    static_cast<const std::byte*>(call.in.data) + piece.offset,
                    static_cast<size_t>(piece.bytes));
        outgoing.push_back(
            {topology_.node_of(piece.rank), send_buffer_.data() + used, piece.bytes, piece.rank});
        longer = piece.bytes;
      }
      if (receives.key() == key) {
        const Pieces::Piece piece = receives.take();
        incoming.push_back({topology_.node_of(piece.rank), receive_buffer_.data() + used,
                            piece.bytes, piece.rank});
        arriving.push_back(piece);
        longer = std::max(longer, piece.bytes);
      }
      used += longer;
    }
    exchange(outgoing, incoming);
    for (size_t i = 0; i < arriving.size(); ++i) {
      std::memcpy(static_cast<std::byte*>(call.out.data) + arriving[i].offset, incoming[i].data,
                  static_cast<size_t>(arriving[i].bytes));
    }
  }
}

}  // namespace shale::comm
