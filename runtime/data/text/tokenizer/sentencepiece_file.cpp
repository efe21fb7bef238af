#include <algorithm>
#include <functional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/protobuf.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"
#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale {
namespace {

using tokenizer_internal::kMaxTokens;

// U+2581, the character that represents a space.
constexpr std::string_view kSpace = "\u2581";
// Maximum bytes of a piece, because every way to divide it in two is tried.
constexpr size_t kMaxPieceBytes = 4096;

enum PieceType : uint64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Piece {
  std::string text;
  float score = 0;
  uint64_t type = kNormal;
};

// Those fields of a model that are used, with the defaults of sentencepiece_model.proto.
struct Model {
  std::vector<Piece> pieces;
  uint64_t model_type = 1;  // model type; the default 1 is unigram
  bool byte_fallback = false;
  int64_t bos = 1;
  bool suffix_spaces = false;
  bool dummy_prefix = true, extra_whitespaces_removed = true, escapes = true;
  bool has_rules = false;
  bool has_user_defined = false;
};

class ModelReader {
 public:
  ModelReader(std::string_view bytes, const std::string& source) : source_(source) {
    each(bytes, [this](const ProtoField& field) {
      if (field.number == 1) read_piece(bytes_of(field, "pieces"));
      if (field.number == 2) read_trainer(bytes_of(field, "trainer_spec"));
      if (field.number == 3) read_normalizer(bytes_of(field, "normalizer_spec"));
    });
  }
  Model take() { return std::move(model_); }

 private:
  void each(std::string_view message, const std::function<void(const ProtoField&)>& fn) const {
    ProtoReader reader(message, source_);
    while (const std::optional<ProtoField> field = reader.next()) fn(*field);
  }
  std::string_view bytes_of(const ProtoField& field, const char* name) const {
    if (field.kind == ProtoField::Kind::kBytes) return field.bytes;
    throw DataError(cat(source_, ": '", name, "' is a number, expected bytes"));
  }

  void read_piece(std::string_view message) {
    Piece piece;
    each(message, [&](const ProtoField& field) {
      if (field.number == 1) piece.text = bytes_of(field, "piece");
      if (field.number == 2 && field.kind == ProtoField::Kind::kFixed32) {
        piece.score = field.real32();
      }
      if (field.number == 3) piece.type = field.value;
    });
    const size_t id = model_.pieces.size();
    const auto fail = [&](std::string_view want) {
      throw DataError(
          cat(source_, ": piece ", id, " ('", excerpt(piece.text, 40), "'): expected ", want));
    };
    if (piece.text.empty()) fail("a piece that is not empty");
    if (piece.text.size() > kMaxPieceBytes) fail(cat("at most ", kMaxPieceBytes, " bytes"));
    if (tokenizer_internal::find_broken_utf8(piece.text) != std::string::npos) fail("UTF-8");
    if (piece.score != piece.score) fail("a score that is a finite number");
    if (piece.type < kNormal || piece.type > kByte || piece.type == kUnused) {
      fail("a type of normal, unknown, control, user-defined or byte");
    }
    if (id == kMaxTokens) fail(cat("at most ", kMaxTokens, " pieces"));
    if (!texts_.insert(piece.text).second) fail("a piece that occurs only once");
    model_.has_user_defined |= piece.type == kUserDefined;
    model_.pieces.push_back(std::move(piece));
  }
  void read_trainer(std::string_view message) {
    each(message, [this](const ProtoField& field) {
      if (field.number == 3) model_.model_type = field.value;
      if (field.number == 24) model_.suffix_spaces = field.value != 0;
      if (field.number == 35) model_.byte_fallback = field.value != 0;
      if (field.number == 41) model_.bos = static_cast<int32_t>(field.integer());
    });
  }
  void read_normalizer(std::string_view message) {
    each(message, [this](const ProtoField& field) {
      if (field.number == 2) model_.has_rules = !bytes_of(field, "precompiled_charsmap").empty();
      if (field.number == 3) model_.dummy_prefix = field.value != 0;
      if (field.number == 4) model_.extra_whitespaces_removed = field.value != 0;
      if (field.number == 5) model_.escapes = field.value != 0;
    });
  }

  const std::string& source_;
  Model model_;
  std::unordered_set<std::string> texts_;
};

void check_kind(const Model& model, const std::string& source) {
  const auto require = [&source](bool holds, const char* what) {
    if (!holds) throw DataError(cat(source, ": a SentencePiece model ", what));
  };
  require(model.model_type == 2, "of another type than BPE, expected BPE");
  require(!model.has_rules, "with normalization rules, expected the identity");
  require(!model.extra_whitespaces_removed,
          "that removes extra spaces, expected a model that keeps them");
  require(model.escapes, "that does not escape spaces, expected a model that does");
  // SentencePiece adds the dummy prefix only at the start of a text, not after user-defined pieces
  // inside the text.
  require(!model.has_user_defined || !model.dummy_prefix,
          "with a dummy prefix and user-defined pieces, expected at most one of the two");
  require(!model.suffix_spaces, "with spaces after words, expected spaces before words");
}

// Finds the merges: two pieces merge if their concatenation is a piece. The merge with the highest
// score of the resulting piece comes first.
void find_merges(const Model& model, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, int32_t> ids;
  std::vector<float> scores;
  const auto is_text = [](const Piece& piece) {
    return piece.type == kNormal || piece.type == kUserDefined;
  };
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (!is_text(model.pieces[id])) continue;
    ids.emplace(model.pieces[id].text, static_cast<int32_t>(id));
    scores.push_back(model.pieces[id].score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  for (const auto& [text, id] : ids) {
    const float score = model.pieces[static_cast<size_t>(id)].score;
    const auto rank = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(text.substr(cut));
      if (right == ids.end()) continue;
      add_merge(spec, {.left = left->second,
                       .right = right->second,
                       .result = id,
                       .rank = static_cast<uint32_t>(rank - scores.begin())});
    }
  }
  std::sort(spec.merges.begin(), spec.merges.end(), [](const MergeRule& a, const MergeRule& b) {
    return std::tuple(a.rank, a.left, a.right) < std::tuple(b.rank, b.left, b.right);
  });
}

}  // namespace

TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& source) {
  const Model model = ModelReader(bytes, source).take();
  check_kind(model, source);
  TokenizerSpec spec{.source = source,
                     .of_bytes = false,
                     .byte_fallback = model.byte_fallback,
                     .fuse_unknown = true,
                     .decoded = {{std::string(kSpace), " "}},
                     .decodes_bytes = model.byte_fallback};
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    spec.tokens.push_back(piece.text);
    const auto number = static_cast<int32_t>(id);
    if (piece.type == kUnknown) spec.unknown = number;
    if (piece.type == kUnknown || piece.type == kControl) {
      spec.added.push_back({.id = number, .text = piece.text});
    } else if (piece.type == kUserDefined) {
      spec.added.push_back({.id = number, .text = piece.text, .special = false});
    }
  }
  find_merges(model, spec);
  if (model.dummy_prefix) {
    spec.normalizer.emplace_back(PrependStep{std::string(kSpace)});
    spec.strip = " ";
    spec.strip_most = 1;
  }
  spec.normalizer.emplace_back(ReplaceStep{" ", std::string(kSpace)});
  const auto pieces = std::ssize(model.pieces);
  if (model.bos >= 0 && model.bos < pieces) spec.before = {static_cast<int32_t>(model.bos)};
  return spec;
}

}  // namespace shale
