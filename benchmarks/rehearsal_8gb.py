"""A dress rehearsal of the profile qwen-8gb: the reader's own commands on seeded random weights, cut down.

    python benchmarks/rehearsal_8gb.py FOLDER

makes two checkpoints in Hugging Face layout under FOLDER (Qwen2.5 shapes, sharded safetensors, a small byte-level
tokenizer), names them in SPECDEC_QWEN_TARGET and SPECDEC_QWEN_DRAFT, and types what the page "Run it on your 8 GB GPU"
tells a reader to type: ``doctor``, then ``runs --profile qwen-8gb`` twice. The second must execute nothing. It works in
a project of its own under FOLDER, whose design gives the profile fewer families, contexts, repeats and phases and caps
the GPU's memory; the code is this checkout's. The last line is one JSON document. The weights are random: the times
show that everything fits and runs, R and acceptance mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from specdec_lib.pairs import PAIRS  # noqa: E402
from specdec_lib.pipeline.table import PHASES  # noqa: E402

PROFILE, SHAPES = "qwen-8gb", "qwen2.5-shapes"
ROLES = ("target", "draft")
SHARD_BYTES = 1_000_000_000
# Qwen's own chat format. The ids of a byte-level tokenizer lie far below the embedding's rows, as padding does.
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CUT: dict[str, Any] = {
    "families": 1,
    "contexts": [8192],
    "repeats": 2,
    "phases": ["confirmatory"],
    "memory_cap_gib": 8.0,
}


def make_checkpoint(folder: Path, shape: Mapping[str, Any], seed: int, device: str = "cpu") -> Path:
    """A folder in Hugging Face layout: config.json, tokenizer files, BF16 weights in shards with their index."""
    from safetensors.torch import save_file

    from specdec_lib.config import ModelConfig
    from specdec_lib.weights import RandomWeights, random_weights

    folder.mkdir(parents=True, exist_ok=True)
    config = ModelConfig(**shape)
    (folder / "config.json").write_text(json.dumps(hf_config(shape), indent=1), encoding="utf-8")
    write_tokenizer(folder)
    tensors = random_weights(config, RandomWeights(seed), device)
    names, where = shards({name: t.numel() * t.element_size() for name, t in tensors.items()}), {}
    for number, part in enumerate(names, start=1):
        file = f"model-{number:05d}-of-{len(names):05d}.safetensors"
        save_file({name: tensors[name].cpu() for name in part}, str(folder / file), metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(t.numel() * 2 for t in tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return folder


def shards(sizes: Mapping[str, int], limit: int = SHARD_BYTES) -> list[list[str]]:
    """Names in order, cut into at least two parts of about ``limit`` bytes."""
    limit = min(limit, sum(sizes.values()) // 2 + 1)
    parts: list[list[str]] = [[]]
    room = limit
    for name, size in sizes.items():
        if parts[-1] and size > room:
            parts.append([])
            room = limit
        parts[-1].append(name)
        room -= size
    return parts


def hf_config(shape: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a Qwen2 checkpoint with this shape."""
    return {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "torch_dtype": "bfloat16",
        "num_hidden_layers": shape["layers"], "hidden_size": shape["hidden"], "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"], "intermediate_size": shape["intermediate"],
        "vocab_size": shape["vocab"], "max_position_embeddings": shape["max_positions"],
        "rms_norm_eps": shape["eps"], "rope_theta": shape["rope_theta"], "tie_word_embeddings": shape["tied"],
        "use_sliding_window": False, "eos_token_id": 258,
    }  # fmt: skip


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE without merges: 256 bytes and three special tokens, with Qwen's chat format."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    backend.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    backend.add_special_tokens(list(SPECIAL))
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def make_project(root: Path, changes: Mapping[str, Any]) -> Path:
    """A project whose profile qwen-8gb is the repository's with ``changes``; ``families``: how many of them."""
    design = (CHECKOUT / "design.toml").read_text(encoding="utf-8")
    entry = tomllib.loads(design)["profiles"][PROFILE] | dict(changes)
    if isinstance(entry["families"], int):
        entry["families"] = tomllib.loads(design)["measurement"]["families"][: entry["families"]]
    entry["minutes"] = {phase: entry["minutes"][phase] for phase in entry["phases"]}
    cells = {str(c): min(1, len(entry["families"])) for c in entry["contexts"]}
    entry["mechanisms"] = {"families": cells, "repeats": entry["mechanisms"]["repeats"]}
    root.mkdir(parents=True, exist_ok=True)
    own = "\n".join(f"{key} = {toml(value)}" for key, value in entry.items())
    head = design[: design.index("[profiles.")]
    (root / "design.toml").write_text(f"{head}[profiles.{PROFILE}]\n{own}\n", encoding="utf-8")
    for folder in ("notebooks", "data/prompts", "data/published"):
        shutil.copytree(CHECKOUT / folder, root / folder, dirs_exist_ok=True)
    return root


def toml(value: Any) -> str:
    """A TOML literal."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def command(root: Path, folder: Path, *arguments: str) -> tuple[float, str]:
    """Run the pipeline as a reader does; seconds and what it said. A failure ends the rehearsal with its output."""
    environment = os.environ | {
        "SPECDEC_ROOT": str(root), "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")]),
        "SPECDEC_QWEN_TARGET": str(folder / "target"), "SPECDEC_QWEN_DRAFT": str(folder / "draft"),
    }  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "specdec_lib.pipeline", *arguments], cwd=root, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with status {done.returncode}:\n{done.stdout}")
    return time.perf_counter() - start, done.stdout


def promised(changes: Mapping[str, Any]) -> list[str]:
    """The tables that a reader finds afterwards."""
    chosen = [phase for phase in PHASES if phase.name in changes["phases"]]
    return [
        promise.path.format(context=context)
        for phase in chosen
        for promise in phase.promises
        for context in (changes["contexts"] if phase.per_context else [0])
    ]


def rehearse(folder: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Doctor, the run, and the run again; what they took and whether everything is there."""
    root = make_project(folder / "project", changes)
    seconds: dict[str, float] = {}
    _, doctor = command(root, folder, "doctor")
    judged = next(line.strip() for line in doctor.splitlines() if line.strip().startswith(PROFILE))
    seconds["first"], _ = command(root, folder, "runs", "--profile", PROFILE)
    seconds["again"], again = command(root, folder, "runs", "--profile", PROFILE)
    data = root / "data" / PROFILE
    missing = [name for name in (*promised(changes), "provenance.json") if not (data / name).is_file()]
    jobs = [
        json.loads(path.read_text(encoding="utf-8"))["result"]
        for path in sorted((data / "jobs").glob("*.json"))
    ]
    return {
        "weights": "random (a rehearsal: R and acceptance mean nothing)", "doctor": judged, "seconds": seconds,
        "missing": missing, "nothing executed again": "nothing executed" in again, "jobs": len(jobs),
        "out of memory": [job["out_of_memory"] for job in jobs if "out_of_memory" in job],
        "own paths in the results": str(folder) in "".join(p.read_text(encoding="utf-8") for p in data.glob("*.*")),
    }  # fmt: skip


def main() -> int:
    """Make the weights unless they are there, rehearse, and say it in one JSON line; 0 when all is well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--phases", default=",".join(CUT["phases"]), help="of the profile (default: %(default)s)"
    )
    parser.add_argument(
        "--contexts", default="8192", help="comma-separated (default: %(default)s, the largest)"
    )
    parser.add_argument(
        "--cap-gib", type=float, default=CUT["memory_cap_gib"], help="GPU memory (default: %(default)s)"
    )
    parser.add_argument(
        "--device", default="cuda", help="where random weights are drawn (default: %(default)s)"
    )
    options = parser.parse_args()
    start = time.perf_counter()
    for seed, (role, shape) in enumerate(zip(ROLES, PAIRS[SHAPES].shapes or (), strict=True)):
        if not (options.folder / role / "model.safetensors.index.json").is_file():
            make_checkpoint(options.folder / role, shape, seed, options.device)
    made = time.perf_counter() - start
    changes = CUT | {
        "phases": options.phases.split(","), "contexts": [int(c) for c in options.contexts.split(",")],
        "memory_cap_gib": options.cap_gib,
    }  # fmt: skip
    found = rehearse(options.folder.resolve(), changes)
    found["seconds"]["weights made"] = made
    print(json.dumps(found))
    faults = found["missing"] or found["out of memory"] or found["own paths in the results"]
    return 1 if faults or not found["nothing executed again"] else 0


if __name__ == "__main__":
    sys.exit(main())
