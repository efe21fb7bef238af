#pragma once

#include <memory>

#include "shale/comm/process_group.h"
#include "shale/runtime/nn/cut_sequence.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// What sequences are cut into.
struct ContextOptions {
  int64_t tokens = 0;  // of a whole sequence; it is padded to a multiple of twice the leaves
  // And so that layers that are cut can divide the tokens of a leaf into so many slices, which is
  // their leaves. A group of one rank pads alone.
  int slices = 1;
  // Parts into which sequences are cut, a power of two that the ranks divide: what runs over tokens
  // is done for each of them by itself, and added up in a binary tree. With equal leaves losses
  // have the same bits on any number of ranks (f32 gradients). A rank with several has as many
  // gradients of every parameter. 0: one for each rank, of which there may then be any number.
  int leaves = 0;
  // How attention sees the tokens of other ranks. Kinds round differently, and each has the bits of
  // its own on any number of ranks with equal leaves.
  nn::ContextKind kind = nn::ContextKind::kGather;
  // Of kUlyssesRing: ranks next to each other that trade heads, which divide the group's ranks and
  // the heads of keys of a layer, or of a leaf where layers are cut. 0: as many as do. They change
  // no bit.
  int group = 0;
  int64_t key_heads = 1;
  bool overlap = true;  // exchange keys and values while attention of others is computed
};

// Cuts the sequences of a model over the ranks of a group: every rank works on its tokens alone,
// and attention exchanges keys and values (nn/cut_attention.h). For models of the layers of nn/
// whose tokens meet nowhere else. All ranks get batches of the same sequences, each its tokens
// (nn::SequenceParts), and make the same losses. Their gradients are of their tokens: to data
// parallelism the ranks are more ranks of ShardGroups::shard, next to each other in its order.
// Comes after tensor_parallel(), if layers are cut too. Group and result outlive the use of the
// model.
//
// Collective. Throws ConfigError for leaves that do not fit the ranks and sequences shorter than
// two tokens a leaf, CommError if ranks differ.
std::unique_ptr<nn::CutSequence> context_parallel(Module& model, ProcessGroup& group,
                                                  const ContextOptions& options);

}  // namespace shale::comm
