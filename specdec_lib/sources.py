"""Where checkpoints lie: local folders, the Hugging Face hub, and how their files are named and identified. No torch."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from specdec_lib.errors import WeightsDamaged, WeightsMissing
from specdec_lib.files import canonical_json, sha256_file, sha256_text

ROOT = Path(os.environ.get("SPECDEC_ROOT") or Path(__file__).resolve().parent.parent)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]


def models_folder() -> Path:
    """Where fetched weights are kept: ``data/models``, or the folder named by SPECDEC_MODELS."""
    return Path(os.environ.get("SPECDEC_MODELS") or ROOT / "data" / "models")


def find_folder(source: str | Path) -> Path:
    """The local folder of a checkpoint given as a folder or as a hub id ``org/name`` (downloaded when needed).

    A folder that exists wins over a hub id of the same text. Raises `WeightsMissing`.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise WeightsMissing(f"{source} is a file", expected="a Hugging Face folder: config.json, *.safetensors",
                             remedy="name the folder that holds the file")
    if isinstance(source, str) and HUB_ID.fullmatch(source):
        return _from_hub(source)
    raise WeightsMissing(f"no folder {source}", expected="a Hugging Face folder, or a hub id such as org/name",
                         remedy="check the path")


def _from_hub(hub_id: str) -> Path:
    import huggingface_hub  # slow, and only this route needs it
    from huggingface_hub.errors import HfHubHTTPError

    # what can go wrong: no network (OSError, httpx errors), HF_HUB_OFFLINE with nothing cached, unknown or gated repo
    failures: tuple[type[Exception], ...] = (OSError, HfHubHTTPError, ValueError, RuntimeError)
    try:
        import httpx

        failures += (httpx.HTTPError,)
    except ImportError:  # older huggingface_hub speaks through requests, whose errors are OSErrors
        pass
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except failures as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WeightsMissing(
            f"{hub_id} could not be fetched from the Hugging Face hub: {first_line}",
            expected="network access to the hub, or the model in its local cache",
            remedy="copy the model's folder (config.json, tokenizer.json, *.safetensors) to this machine and pass "
                   'its path: load_pair(("/path/to/target", "/path/to/draft")); for the pair qwen2.5 set '
                   "SPECDEC_QWEN_TARGET and SPECDEC_QWEN_DRAFT to the two folders",
        ) from error


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a folder as a dict. Raises `WeightsMissing` or `WeightsDamaged`."""
    path = folder / "config.json"
    if not path.is_file():
        raise WeightsMissing(f"no config.json in {folder}", expected="a Hugging Face folder: config.json, *.safetensors",
                             remedy="copy the whole folder of the model, not only its weights")
    return _object(path)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, as its index names them or all there are; sorted.

    Raises `WeightsMissing` (none, or one that the index names) and `WeightsDamaged` (an unreadable index).
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        table = _object(index).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise WeightsDamaged(f"{index} has no usable weight_map", expected="a map of tensor names to file names",
                                 remedy="fetch the file again")
        names = sorted(set(table.values()))
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise WeightsMissing(f"no *.safetensors in {folder}", expected="weights in the safetensors format",
                             remedy="convert them: transformers' from_pretrained(folder).save_pretrained(new_folder)")
    for name in names:
        if not (folder / name).is_file():
            raise WeightsMissing(f"{folder / name} is missing; {index.name} names it", expected=f"{len(names)} files",
                                 remedy="fetch this file again")
    return [folder / name for name in names]


def folder_digest(folder: Path) -> str:
    """Hex identity of a checkpoint: its configuration and the SHA-256 of each weight file.

    In the hub's cache a weight file is a link to a blob named by its SHA-256, which saves reading gigabytes.
    """
    files = {}
    for path in weight_files(folder):
        blob = path.resolve().name
        is_named_by_digest = path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", blob)
        files[path.name] = blob if is_named_by_digest else sha256_file(path)
    return sha256_text(canonical_json({"config": read_config(folder), "files": files}))


def verify(folder: Path, digests: dict[str, str], remedy: str) -> None:
    """Check each file of ``digests`` (name to hex SHA-256) in ``folder``: `WeightsMissing` or `WeightsDamaged`."""
    for name, pinned in digests.items():
        path = folder / name
        if not path.is_file():
            raise WeightsMissing(f"{path} is missing", expected=f"a file with SHA-256 {pinned}", remedy=remedy)
        found = sha256_file(path)
        if found != pinned:
            raise WeightsDamaged(f"{path} has SHA-256 {found}", expected=pinned, remedy=remedy)


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WeightsDamaged(f"{path} is not JSON: {error}", expected="a JSON object",
                             remedy="fetch the file again") from error
    if not isinstance(value, dict):
        raise WeightsDamaged(f"{path} holds a {type(value).__name__}", expected="a JSON object",
                             remedy="fetch the file again")
    return value
