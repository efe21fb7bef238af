#include "shale/models/language/data_config.h"

#include "shale/base/error.h"

namespace shale::models {
namespace {

void describe_source(ConfigSpec& spec, DataConfig& c, bool needs_data) {
  spec.add("data", c.data,
           "text file or folder, jsonl, llm.c shards (.bin), Megatron's .bin and .idx, .npy, a "
           "nanoGPT folder, or a pattern of names; several with weights are a mixture, "
           "a:0.7,b:0.3, or a file NAME.mix.json",
           {.required = needs_data, .is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("text, jsonl, or files of tokens; see --help data");
  spec.add_choice("data-format", c.format,
                  {{"auto", DataFormat::kAuto},
                   {"text", DataFormat::kText},
                   {"llmc", DataFormat::kLlmc},
                   {"nanogpt", DataFormat::kNanogpt},
                   {"megatron", DataFormat::kMegatron},
                   {"raw", DataFormat::kRaw},
                   {"corpus", DataFormat::kCorpus}},
                  "how to read it; raw: tokens without a header, corpus: jsonl or text, also .gz "
                  "and .zst, whose tokens are made once and kept")
      .may_change();
  spec.add_choice("data-dtype", c.dtype, {"auto", "u8", "u16", "u32"},
                  "of tokens in files that do not say it")
      .may_change();
  spec.add("data-field", c.field, "key of the text in a line of jsonl").may_change();
  spec.add("data-cache", c.cache, "where tokens of a corpus are kept, for all runs that share it",
           {.is_path = true, .help = {.metavar = "DIR", .default_text = "OUT/data-cache"}})
      .may_change();
  spec.add("tokenizer", c.tokenizer,
           "makes tokens of text, in data and samples, and goes into checkpoints and exports: "
           "tokenizer.json, tiktoken's file, or a SentencePiece model; none: text is bytes",
           {.is_path = true,
            .help = {.metavar = "FILE", .default_text = "that of the checkpoint or --init"}})
      .may_change()
      .basic("makes tokens of text; none: text is bytes");
  spec.add("val-fraction", c.val_fraction,
           "part held out for validation, unless the data says by its names what is",
           {.min = 0, .max = 1, .exclude_max = true});
  spec.add("validate", c.validate,
           "read all binary tokens before training, and compare all of them between ranks and with "
           "the run that is resumed; without, pages spread over each file are compared, and tokens "
           "checked where they are used")
      .may_change();
}

void describe_rows(ConfigSpec& spec, DataConfig& c) {
  spec.add("document-mask", c.document_mask,
           "documents of a sequence do not see each other, and count positions from their own "
           "beginning");
  spec.add("document-token", c.document_token, "the token between documents",
           {.min = 0, .max = INT32_MAX, .help = {.default_text = "the tokenizer's"}});
  spec.add_choice("packing", c.packing,
                  {{"auto", PackingChoice::kAuto},
                   {"concat", PackingChoice::kConcat},
                   {"best-fit", PackingChoice::kBestFit},
                   {"none", PackingChoice::kNone}},
                  "how documents come into sequences: one after the other; whole, the longest "
                  "first, where they fit best; or one in each. auto: concat, of examples best-fit");
}

}  // namespace

void describe_chat_template(ConfigSpec& spec, ChatTemplate& style) {
  spec.add_choice(
      "chat-template", style,
      {{"auto", ChatTemplate::kAuto},
       {"chatml", ChatTemplate::kChatMl},
       {"llama3", ChatTemplate::kLlama3},
       {"qwen", ChatTemplate::kQwen}},
      "how conversations are written; auto: by the chat template that the model comes with, else "
      "by the one whose marks the tokenizer has");
}

void describe(ConfigSpec& spec, DataConfig& c, bool needs_data) {
  spec.section("Data");
  spec.add_choice(
          "task", c.objective,
          {{"pretrain", Objective::kPretrain}, {"sft", Objective::kSft}, {"dpo", Objective::kDpo}},
          "what is learnt: every token of text, the answers of conversations in jsonl, or "
          "which of two answers is better")
      .basic("text, answers of chats, or preferences");
  describe_source(spec, c, needs_data);
  describe_rows(spec, c);
  describe_chat_template(spec, c.chat_template);
  spec.add("dpo-beta", c.dpo_beta, "how far dpo may go from the model that it begins with",
           {.min = 0, .max = 1e3, .exclude_min = true});
  spec.add("dpo-label-smoothing", c.dpo_smoothing,
           "part of the preferences that dpo takes to be wrong",
           {.min = 0, .max = 0.5, .exclude_max = true});
  spec.needs("data-dtype data-field data-cache", "--task pretrain");
  spec.needs("document-token", "--document-mask or --packing best-fit");
  spec.needs("chat-template", "--task sft or --task dpo");
  spec.needs("dpo-beta dpo-label-smoothing", "--task dpo");
}

void check(const DataConfig& c) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) throw ConfigError(cat(what...));
  };
  if (c.objective == Objective::kPretrain) {
    want(c.packing != PackingChoice::kNone,
         "--packing none needs --task sft or dpo, whose data is examples; use concat or "
         "best-fit");
    return;
  }
  want(c.packing != PackingChoice::kConcat,
       "--packing concat cuts examples apart; use best-fit or none");
  want(!c.document_mask, "--document-mask is of --task pretrain: examples never see each other");
  want(c.objective != Objective::kDpo || c.packing != PackingChoice::kBestFit,
       "--packing best-fit is of --task sft; dpo has an answer in each row");
  want(c.format == DataFormat::kAuto, "--data-format is of --task pretrain: examples are jsonl");
  want(!c.validate, "--validate is of --task pretrain: all of the examples are read anyway");
}

}  // namespace shale::models
