"""Where checkpoints lie (folders, the Hugging Face hub) and how their files are identified. No torch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import WeightsDamaged, WeightsMissing
from .files import canonical_json, sha256_file, sha256_text

ROOT = Path(os.environ.get("SPECDEC_ROOT") or Path(__file__).resolve().parent.parent)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]
_FOLDER = "a Hugging Face folder: config.json, tokenizer.json, *.safetensors"


def models_folder() -> Path:
    """Where fetched weights are kept: ``data/models``, or the folder named by SPECDEC_MODELS."""
    return Path(os.environ.get("SPECDEC_MODELS") or ROOT / "data" / "models")


def find_folder(source: str | Path) -> Path:
    """The local folder of a checkpoint given as a folder or as a hub id ``org/name``, fetched when needed.

    A folder that exists wins over a hub id of the same text. Raises `WeightsMissing`.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise WeightsMissing(f"{source} is a file", expected=_FOLDER, remedy="name the folder that holds it")
    if isinstance(source, str) and _HUB_ID.fullmatch(source):
        return _from_hub(source)
    raise WeightsMissing(f"no folder {source}", expected=f"{_FOLDER}; or a hub id", remedy="check the path")


def _from_hub(hub_id: str) -> Path:
    import httpx
    import huggingface_hub  # both take a while to import, and only this route needs them

    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    # OSError: no network, or (the hub's own errors derive from it) nothing cached under HF_HUB_OFFLINE, an
    # unknown or a gated repository; httpx: a broken or refused connection; ValueError: no valid repository
    # name
    except (OSError, httpx.HTTPError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise WeightsMissing(
            f"{hub_id} could not be fetched from the Hugging Face hub: {lines[0]}",
            expected="access to the hub, or the model in its local cache",
            remedy="copy the model's folder here and pass it: load_pair((target_folder, draft_folder)); "
            "for the pair qwen2.5 name the folders in SPECDEC_QWEN_TARGET and SPECDEC_QWEN_DRAFT",
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file that exists. Raises `WeightsDamaged`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        value = error
    if not isinstance(value, dict):
        what = f"{path} holds no JSON object: {value!r:.80}"
        raise WeightsDamaged(what, expected="a complete JSON file", remedy="fetch this file again")
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a folder. Raises `WeightsMissing` or `WeightsDamaged`."""
    if not (folder / "config.json").is_file():
        raise WeightsMissing(f"no config.json in {folder}", expected=_FOLDER, remedy="copy the whole folder")
    return read_json(folder / "config.json")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, as its index names them or all there are; sorted.

    Raises `WeightsMissing` (none, or one that the index names) and `WeightsDamaged` (an unreadable index).
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        table = read_json(index).get("weight_map")
        names = sorted({str(name) for name in table.values()}) if isinstance(table, dict) else []
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise WeightsMissing(
            f"no *.safetensors in {folder}",
            expected=_FOLDER,
            remedy="convert other formats: transformers' from_pretrained(folder).save_pretrained(new_folder)",
        )
    for name in names:
        if not (folder / name).is_file():
            what = f"{folder / name} is missing; {index.name} names it"
            raise WeightsMissing(what, expected=", ".join(names), remedy="fetch this file again")
    return [folder / name for name in names]


def folder_digest(folder: Path) -> str:
    """Hex identity of a checkpoint: its configuration and the SHA-256 of each weight file.

    In the hub's cache a weight file is a link to a blob named by its SHA-256, which saves reading gigabytes.
    """
    files = {}
    for path in weight_files(folder):
        blob = path.resolve().name
        named_by_digest = path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", blob)
        files[path.name] = blob if named_by_digest else sha256_file(path)
    return sha256_text(canonical_json({"config": read_config(folder), "files": files}))


def verify(folder: Path, digests: Mapping[str, str], remedy: str) -> None:
    """Check every file of ``digests`` (name to hex SHA-256). Raises `WeightsMissing` or `WeightsDamaged`."""
    for name, pinned in digests.items():
        path = folder / name
        if not path.is_file():
            raise WeightsMissing(f"{path} is missing", expected=f"SHA-256 {pinned}", remedy=remedy)
        if (found := sha256_file(path)) != pinned:
            raise WeightsDamaged(f"{path} has SHA-256 {found}", expected=pinned, remedy=remedy)
