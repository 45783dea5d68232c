"""A matrix product with fixed weights, in the fastest form the device offers. The form is recorded with results."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def packing_available() -> bool:
    """Whether oneDNN's prepacked product can be used: same arithmetic as ``linear``, at M = 1 about 1.8x its speed.

    ``linear`` reads plain rows; a packed weight is stored once in the order in which the vector units use it.
    """
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Projection:
    """y = x W^T + b for x [M, in] -> [M, out]. ``form`` is "packed" (on a CPU with oneDNN) or "linear"."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self.bytes = weight.numel() * weight.element_size() + (
            0 if bias is None else bias.numel() * bias.element_size()
        )
        self.bias = bias
        if weight.device.type == "cpu" and packing_available():
            self.form, self.weight = "packed", torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)
        else:
            self.form, self.weight = "linear", weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        if self.form == "packed":
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)
