"""The correctness layers as rows of one table: logits, FP32 token equality, the BF16 margin rule, the final text.

A row's ``value`` is compared with its ``limit``; it passed when value <= limit. Only this module imports transformers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .config import ModelConfig
from .decoding import autoregressive, speculative
from .formats import has_format
from .model import DecoderModel, prefill
from .pairs import Pair
from .prefilled import Prefilled
from .proposers import DraftModel
from .protocol import FORMULATIONS

LOGIT_LIMIT = 1e-4  # largest difference, relative to the largest logit, FP32
NATS_LIMIT = 0.1  # mean log-probability per token that SpecDec's text may lose against AR's
WIDTH_LIMIT = 0.05  # the same between block widths in BF16, whose numbers are 2^-8 apart
Row = dict[str, Any]


def row(subject: str, check: str, dtype: str, value: float, limit: float, kind: str, **settings: Any) -> Row:
    """One line of the correctness table (schema "correctness")."""
    blank = {"formulation": None, "bonus": None, "k": None}
    fixed = {"subject": subject, "model_kind": kind, "check": check, "dtype": dtype}
    return fixed | blank | settings | {"passed": value <= limit, "value": value, "limit": limit}


@torch.inference_mode()
def logit_rows(kind: str, prompt: int = 40, rows: int = 9, seed: int = 0) -> list[Row]:
    """Our FP32 logits against transformers' on one small random checkpoint of ``kind``, written and read as files.

    Prefill in chunks of every size up to the prompt, one-token steps, and blocks of 2 to ``rows`` rows at every offset.
    """
    reference, model = small_checkpoint(kind, seed)
    ids = torch.randint(
        0, model.config.vocab, (prompt + rows,), generator=torch.Generator().manual_seed(seed)
    )
    expected = reference(ids.unsqueeze(0)).logits[0].float()

    def error(logits: Tensor, last: int) -> float:
        """Of the logits of consecutive rows that end with row ``last``."""
        wanted = expected[last + 1 - logits.shape[0] : last + 1]
        return float((logits - wanted).abs().max() / expected.abs().max())

    def after(length: int, chunk: int = 2048) -> Any:
        cache = model.new_cache(prompt + rows)
        prefill(model, ids[:length], cache, chunk)
        return cache

    chunks = max(
        error(prefill(model, ids[:prompt], model.new_cache(prompt), c), prompt - 1)
        for c in range(1, prompt + 1)
    )
    cache = after(1)
    steps = max(error(model.forward(ids[i : i + 1], cache), i) for i in range(1, prompt + rows))
    blocks = 0.0
    for width in range(2, rows + 1):
        for start in range(1, prompt):
            blocks = max(
                blocks, error(model.forward(ids[start : start + width], after(start)), start + width - 1)
            )
    values = {
        "logits, prefill in chunks": chunks,
        "logits, steps": steps,
        "logits, blocks at every offset": blocks,
    }
    return [row(f"random {kind}", check, "fp32", value, LOGIT_LIMIT, kind) for check, value in values.items()]


def small_checkpoint(kind: str, seed: int = 0) -> tuple[Any, DecoderModel]:
    """A two-layer random transformers model of ``kind`` and ours, loaded from the folder it was saved to."""
    import transformers

    from .sources import read_config
    from .weights import load_weights

    shape: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "tie_word_embeddings": kind == "qwen2",
    }
    config, model_class = {
        "llama": (transformers.LlamaConfig(**shape), transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config(**shape), transformers.Qwen2ForCausalLM),
    }[kind]
    torch.manual_seed(seed)
    reference = model_class(config).eval()
    for name, parameter in reference.named_parameters():  # zeros and ones would hide a swapped bias or norm
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2)
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        ours = ModelConfig.from_hf(read_config(Path(folder)))
        return reference, DecoderModel(ours, load_weights(Path(folder), ours), name=f"random {kind}")


def token_rows(
    pair: Pair, prompts: dict[str, list[int]], new_tokens: int, ks: Iterable[int], reference: Any = None
) -> Iterator[Row]:
    """FP32 token equality on real prompts: AR against transformers' greedy ``reference`` (if given), and both
    formulations, with and without bonus, for every k against AR. ``value`` counts the tokens that differ.
    """
    kind = pair.target.config.kind
    for family, prompt in prompts.items():
        target = Prefilled.compute(pair.target, prompt, new_tokens)
        draft = Prefilled.compute(pair.draft, prompt, new_tokens)
        ar = autoregressive(pair.target, prompt, new_tokens, prefilled=target).tokens
        if reference is not None:
            greedy = transformers_greedy(reference, prompt, new_tokens)
            yield row(family, "tokens, AR against transformers", pair.dtype, differing(ar, greedy), 0, kind)
        for formulation in FORMULATIONS:
            for bonus in (True, False):
                for k in ks:
                    done = speculative(
                        pair.target, DraftModel(pair.draft, draft), prompt, new_tokens, k, bonus,
                        formulation=formulation, prefilled=target,
                    )  # fmt: skip
                    yield row(
                        family, "tokens, speculative against AR", pair.dtype, differing(done.tokens, ar), 0, kind,
                        formulation=formulation, bonus=bonus, k=k,
                    )  # fmt: skip


def margin_rows(
    pair: Pair, prompts: dict[str, list[int]], new_tokens: int, k: int, margin: float
) -> Iterator[Row]:
    """The BF16 rule: every emitted token is the M = 1 argmax under teacher forcing, or within ``margin`` logits of it.

    ``value`` is the largest gap. A second row per family gives the largest difference of any logit between M = 1 and a
    block of k + 1 rows. The margin is twice that on the development families, at most 0.5; here the difference must
    only stay within what BF16 rounding explains, a share of the largest logit.
    """
    kind = pair.target.config.kind
    for family, prompt in prompts.items():
        target = Prefilled.compute(pair.target, prompt, new_tokens)
        draft = DraftModel(pair.draft, Prefilled.compute(pair.draft, prompt, new_tokens))
        known: list[int] = []
        single = torch.empty(0)
        for formulation in FORMULATIONS:
            tokens = speculative(
                pair.target, draft, prompt, new_tokens, k, True, formulation=formulation, prefilled=target
            ).tokens
            if tokens != known:
                known, single = tokens, forced(pair.target, target, prompt, tokens, 1)
            chosen = single.gather(1, torch.tensor(tokens, device=single.device).unsqueeze(1)).squeeze(1)
            gap = float((single.max(-1).values - chosen).max())
            yield row(
                family, "margin rule", pair.dtype, gap, margin, kind, formulation=formulation, bonus=True, k=k
            )
        block = forced(pair.target, target, prompt, known, k + 1)
        spread = float((single - block).abs().max())
        limit = WIDTH_LIMIT * float(single.abs().max())
        yield row(family, "logits, M = 1 against M = k + 1", pair.dtype, spread, limit, kind, k=k)


def application_rows(
    measured: Pair,
    exact: Pair,
    prompts: dict[str, list[int]],
    new_tokens: int,
    k: int,
    formats: dict[str, str],
) -> Iterator[Row]:
    """Is the final text as good? Both arms' outputs in ``measured`` precision, judged by ``exact``'s target.

    ``value``: by how much SpecDec's mean log-probability per token, in nats under the FP32 target, falls below AR's.
    For families with a checkable answer (``formats``: family -> check) also whether SpecDec lost a form that AR kept.
    """
    kind = measured.target.config.kind
    for family, prompt in prompts.items():
        target = Prefilled.compute(measured.target, prompt, new_tokens)
        draft = DraftModel(measured.draft, Prefilled.compute(measured.draft, prompt, new_tokens))
        judge = Prefilled.compute(exact.target, prompt, new_tokens)
        ar = autoregressive(measured.target, prompt, new_tokens, prefilled=target).tokens
        spec = speculative(
            measured.target, draft, prompt, new_tokens, k, False, formulation="reference", prefilled=target
        ).tokens
        means = [mean_log_probability(exact.target, judge, prompt, tokens) for tokens in (ar, spec)]
        yield row(
            family,
            "application, log-probability lost",
            measured.dtype,
            means[0] - means[1],
            NATS_LIMIT,
            kind,
            k=k,
        )
        if family in formats:
            kept = [has_format(formats[family], measured.tokenizer.decode(tokens)) for tokens in (ar, spec)]
            lost = float(kept[0] and not kept[1])
            yield row(family, f"application, {formats[family]} form lost", measured.dtype, lost, 0, kind, k=k)


def mean_log_probability(
    model: DecoderModel, start: Prefilled, prompt: list[int], tokens: list[int]
) -> float:
    """Mean over ``tokens`` of their log-probability under ``model``, in nats."""
    scores = forced(model, start, prompt, tokens, len(tokens)).log_softmax(-1)
    return float(scores.gather(1, torch.tensor(tokens, device=scores.device).unsqueeze(1)).mean())


@torch.inference_mode()
def forced(model: DecoderModel, start: Prefilled, prompt: list[int], tokens: list[int], width: int) -> Tensor:
    """FP32 copies of the logits [N, vocab] that predict each of ``tokens``, fed in blocks of ``width`` rows."""
    start.rewind(model, prompt, len(tokens))
    ids = torch.tensor(tokens, device=model.device)
    rows = [start.logits]
    for at in range(0, len(tokens) - 1, width):
        rows.append(model.forward(ids[at : min(at + width, len(tokens) - 1)], start.cache))
    return torch.cat(rows).float()


def transformers_model(pair_name: str, dtype: torch.dtype = torch.float32) -> Any:
    """The pair's target as transformers loads it from the same folder."""
    import transformers

    from . import smollm2
    from .pairs import find_pair
    from .sources import find_folder

    spec = find_pair(pair_name)
    folder = find_folder(spec.places[0]) if spec.places else smollm2.ready_folder()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@torch.inference_mode()
def transformers_greedy(model: Any, prompt: list[int], new_tokens: int) -> list[int]:
    """transformers' own greedy continuation, EOS ignored."""
    out = model.generate(
        torch.tensor([prompt], device=model.device), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, pad_token_id=0,
    )  # fmt: skip
    return out[0, len(prompt) :].tolist()


def differing(tokens: list[int], against: list[int]) -> int:
    """Positions at which two outputs differ; a missing token counts as different."""
    same = sum(a == b for a, b in zip(tokens, against, strict=False))
    return max(len(tokens), len(against)) - same
