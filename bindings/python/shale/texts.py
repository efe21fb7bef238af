"""Trained language models, and the texts that they generate."""

import ctypes
import json

from . import _library, _runtime
from ._library import call, result


class TextModel:
    """A trained language model on this rank's device; load() makes it."""

    def __init__(self, path, tokenizer, dtype):
        options = _library.options(
            _library.TextModelOptions, dtype=dtype.encode(),
            tokenizer=None if tokenizer is None else str(tokenizer).encode())
        self._path = str(path)
        self._handle = result("text_model_load", _runtime.handle(), self._path.encode(),
                              ctypes.byref(options), shown="load")

    def __del__(self):
        handle = getattr(self, "_handle", None)
        if handle is not None and _runtime is not None and _runtime._current is not None:
            _library._functions["text_model_destroy"](handle)

    def __repr__(self):
        return f"shale.TextModel({self._path!r})"

    def generate(self, prompt, max_tokens=256, *, temperature=0.8, top_k=50, top_p=1.0, seed=1234,
                 stop=None, show=None):
        """Returns the text that follows a prompt. The same arguments give the same text.

        prompt: a text to continue, or a conversation to answer, as a list of messages
        {"role": "user", "content": "..."}, written with the model's chat template. temperature: 0:
        always the likeliest token. top_k: number of likeliest tokens to sample from, 0: all. top_p:
        their maximum total probability. stop: text before whose first occurrence the result ends.
        show: function that is called with each new part of the text."""
        is_chat = not isinstance(prompt, str)
        options = _library.options(
            _library.GenerateOptions, max_tokens=max_tokens, temperature=temperature, top_k=top_k,
            top_p=top_p, seed=seed, chat=int(is_chat),
            stop=None if stop is None else stop.encode())
        text = json.dumps(prompt) if is_chat else prompt
        parts, errors = [], []

        def take(_, data, length):
            try:
                parts.append(ctypes.string_at(data, length).decode(errors="replace"))
                if show is not None:
                    show(parts[-1])
                return 0
            except BaseException as error:  # raised again below
                errors.append(error)
                return 1

        call("text_generate", self._handle, text.encode(), ctypes.byref(options),
             _library.TextPart(take), None, shown="generate")
        if errors:
            raise errors[0]
        return "".join(parts)


def load(path, *, tokenizer=None, dtype="auto"):
    """Loads the language model of a Hugging Face folder, a checkpoint or a run of train_lm, without
    sharding it. Starts a runtime with defaults if there is none. tokenizer: a file;
    default: the model's own. dtype: "fp32", "bf16", "fp16", or "auto": bf16 on GPUs, fp32 on the
    CPU."""
    if _runtime._current is None:
        _runtime.init()
    return TextModel(path, tokenizer, dtype)
