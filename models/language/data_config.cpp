#include "shale/models/language/data_config.h"

#include "shale/base/error.h"

namespace shale::models {
namespace {

void describe_source(ConfigSpec& spec, DataConfig& c, bool needs_data) {
  spec.add("data", c.data,
           "text file or folder, jsonl, token files (llm.c, Megatron, nanoGPT, .npy), or a glob; "
           "weighted mixture: a:0.7,b:0.3, or a file NAME.mix.json; standard input: -",
           {.required = needs_data, .is_path = true, .help = {.metavar = "PATH"}})
      .may_change()
      .basic("text, jsonl, or token files; see --help data");
  spec.add_choice("data-format", c.format,
                  {{"auto", {DataFormat::kAuto}},
                   {"text", {DataFormat::kText}},
                   {"llmc", {DataFormat::kLlmc}},
                   {"nanogpt", {DataFormat::kNanogpt}},
                   {"megatron", {DataFormat::kMegatron}},
                   {"u8", {DataFormat::kRaw, TokenWidth::k8}},
                   {"u16", {DataFormat::kRaw, TokenWidth::k16}},
                   {"u32", {DataFormat::kRaw, TokenWidth::k32}},
                   {"corpus", {DataFormat::kCorpus}}},
                  "format of --data; u8, u16, u32: tokens without a header; corpus: jsonl or text, "
                  "also .gz and .zst, tokenized once and cached")
      .may_change();
  spec.add("data-field", c.field, "key of the text in jsonl").may_change();
  spec.add("data-cache", c.cache,
           "folder of the cached tokens of a corpus; several runs may share it",
           {.is_path = true, .help = {.metavar = "DIR", .default_text = "OUT/data-cache"}})
      .may_change();
  spec.add("tokenizer", c.tokenizer,
           "tokenizer.json, tiktoken file or SentencePiece model; none: text is bytes",
           {.is_path = true,
            .help = {.metavar = "FILE", .default_text = "that of the checkpoint or --init"}})
      .may_change()
      .basic("tokenizer file; none: text is bytes");
  spec.add(
      "val-fraction", c.val_fraction,
      "share of the data for validation, if no file name contains val, valid, validation or dev",
      {.min = 0, .max = 1, .exclude_max = true});
}

void describe_rows(ConfigSpec& spec, DataConfig& c) {
  spec.add("document-mask", c.document_mask,
           "mask attention between documents, and restart positions in each document");
  spec.add("document-token", c.document_token, "id of the token between documents",
           {.min = 0, .max = INT32_MAX, .help = {.default_text = "the tokenizer's"}});
  spec.add_choice("packing", c.packing,
                  {{"auto", PackingChoice::kAuto},
                   {"concat", PackingChoice::kConcat},
                   {"best-fit", PackingChoice::kBestFit},
                   {"none", PackingChoice::kNone}},
                  "how documents fill sequences; concat: one after another; best-fit: undivided, "
                  "the longest first; none: one per sequence; auto: best-fit for sft, none for "
                  "dpo, else concat");
}

}  // namespace

void describe_chat_template(ConfigSpec& spec, ChatTemplate& style) {
  spec.add_choice("chat-template", style,
                  {{"auto", ChatTemplate::kAuto},
                   {"chatml", ChatTemplate::kChatMl},
                   {"llama3", ChatTemplate::kLlama3},
                   {"qwen", ChatTemplate::kQwen}},
                  "format of conversations; auto: the model's own template, else the one whose "
                  "special tokens the tokenizer has");
}

void describe(ConfigSpec& spec, DataConfig& c, bool needs_data) {
  spec.section("Data");
  spec.add_choice(
          "task", c.objective,
          {{"pretrain", Objective::kPretrain}, {"sft", Objective::kSft}, {"dpo", Objective::kDpo}},
          "what to train on; pretrain: all tokens of text; sft: answers in conversations (jsonl); "
          "dpo: preference pairs (jsonl)")
      .basic("train on text, chat answers, or preference pairs");
  describe_source(spec, c, needs_data);
  describe_rows(spec, c);
  describe_chat_template(spec, c.chat_template);
  spec.add("dpo-beta", c.dpo_beta,
           "DPO beta: higher values keep the model closer to the initial model",
           {.min = 0, .max = 1e3, .exclude_min = true});
  spec.needs("data-field data-cache", "--task pretrain");
  spec.needs("document-token", "--document-mask or --packing best-fit");
  spec.needs("chat-template", "--task sft or --task dpo");
  spec.needs("dpo-beta", "--task dpo");
}

void check(const DataConfig& c) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) throw ConfigError(cat(what...));
  };
  if (c.objective == Objective::kPretrain) {
    want(c.packing != PackingChoice::kNone,
         "--packing none needs --task sft or dpo (found pretrain); use concat or best-fit");
    return;
  }
  want(c.packing != PackingChoice::kConcat,
       "--packing concat needs --task pretrain, because it cuts examples into pieces; use best-fit "
       "or none");
  want(!c.document_mask,
       "--document-mask needs --task pretrain: with sft and dpo, examples never attend to each "
       "other");
  want(
      c.objective != Objective::kDpo || c.packing != PackingChoice::kBestFit,
      "--packing best-fit does not support --task dpo, which has one answer per row; leave it out");
  want(c.format == FileFormat{}, "--data-format needs --task pretrain: sft and dpo read jsonl");
}

}  // namespace shale::models
