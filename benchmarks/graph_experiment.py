"""The phase "graphs" on the Qwen2.5 shapes with random weights, without the pipeline.

    python benchmarks/graph_experiment.py OUTPUT_FOLDER [--pair qwen2.5-shapes] [--contexts 2048,4096,8192]

Prints every row and writes graphs.json: the rows of ``graph_phase.measure`` and the GPU's state before and after. In a
profile that has the phase, `make runs PROFILE=<name>` measures the same as the job "graphs".
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from specdec_lib.graph_phase import measure  # noqa: E402
from specdec_lib.pairs import load_pair  # noqa: E402

# As in graph_tables, which needs pandas.
ALPHAS, KS, CAP_BYTES = (0.77, 0.755, 0.735), (1, 2, 4), 8 << 30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pair", default="qwen2.5-shapes")
    parser.add_argument("--contexts", default="2048,4096,8192")
    given = parser.parse_args()
    spec: dict[str, Any] = {
        "contexts": [int(context) for context in given.contexts.split(",")], "new_tokens": 64, "k": 4, "ks": list(KS),
        "alphas": list(ALPHAS), "cap_bytes": CAP_BYTES,
    }  # fmt: skip
    result = measure(spec, load_pair(given.pair, "cuda", "bf16"))
    for row in result["rows"]:
        place = " ".join(str(row[key]) for key in ("mode", "variant", "context_tokens", "k"))
        print(
            f"{row['part']:20s} {row['quantity']:42s} {place:70s} {row['value']} {row['unit']} {row['outcome']}"
        )
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / "graphs.json").write_text(json.dumps({"spec": spec, "result": result}) + "\n")


if __name__ == "__main__":
    main()
