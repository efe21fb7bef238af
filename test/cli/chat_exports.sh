#!/usr/bin/env bash
# Exports chat models of three families and four templates in three ways. Checks the end-of-text
# tokens and chat templates in the files: they must be those with which transformers and llama.cpp
# ran such models in test/oracles/chat_exports.py.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$tests/support/chat_exports.sh" "$BIN_DIR" "$work/models" 1 >"$work/output" 2>&1 ||
  { fail "chat_exports.sh: exit code $?"; finish; }
cd "$work/models" || exit 1
perl "$tests/support/export_facts.pl" gpt2 llama own qwen >"$work/facts" || fail "export_facts.pl: exit code $?"
diff <(grep -v '^answers/' "$tests/oracles/chat_exports.txt") "$work/facts" >"$work/output" ||
  fail "exports say something else than the models that other programs have run"
finish
