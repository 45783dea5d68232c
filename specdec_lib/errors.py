"""Named errors. Each says what was wrong, what was expected and what to do about it."""

from __future__ import annotations


class SpecDecError(Exception):
    """Base of every error this study raises on purpose.

    ``what`` states the fault, ``expected`` what would have been right, ``remedy`` what to do next.
    """

    def __init__(self, what: str, *, expected: str = "", remedy: str = "") -> None:
        self.what, self.expected, self.remedy = what, expected, remedy
        parts = [what]
        if expected:
            parts.append(f"Expected: {expected}")
        if remedy:
            parts.append(f"Remedy: {remedy}")
        super().__init__("\n  ".join(parts))


def is_count(value: object, least: int = 1) -> bool:
    """Whether ``value`` is an integer, not a bool, and at least ``least``: what most requests are checked for."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class InvalidPrompt(SpecDecError, ValueError):
    """Empty prompt, an id outside the vocabulary, or a string without a tokenizer."""


class ContextTooLong(SpecDecError, ValueError):
    """Prompt plus new tokens does not fit the model's positions or the cache's capacity."""


class InvalidSetting(SpecDecError, ValueError):
    """A parameter outside its range: k < 1, an unknown formulation, a misspelt name."""


class NoCudaDevice(SpecDecError, RuntimeError):
    """A mode that captures CUDA graphs, on a device that is not a CUDA GPU."""


class UnsupportedDevice(SpecDecError, RuntimeError):
    """A GPU too old for the kernels or the number format that were asked for."""


class TritonMissing(SpecDecError, ImportError):
    """The fused kernels were asked for where Triton, or the compiler it needs, is not installed."""


class OutOfDeviceMemory(SpecDecError, MemoryError):
    """The GPU, or the share of it that this process may use, has too little memory left. A recorded outcome."""


class CacheError(SpecDecError, RuntimeError):
    """An append or trim that the cache cannot do."""


class VocabularyMismatch(SpecDecError, ValueError):
    """Target and draft do not share one tokenizer."""


class UnsupportedModel(SpecDecError, ValueError):
    """A checkpoint whose architecture or options the engine does not implement."""


class UnknownPair(SpecDecError, KeyError):
    """No pair of that name."""

    def __str__(self) -> str:  # KeyError would print the repr
        return Exception.__str__(self)


class UnknownProfile(SpecDecError, KeyError):
    """No profile of that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class WeightsMissing(SpecDecError, FileNotFoundError):
    """Weights are not where they should be and could not be fetched."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class WeightsDamaged(SpecDecError, RuntimeError):
    """Weights do not match their pinned digest, are truncated, or lack a tensor."""


class InvalidDesign(SpecDecError, ValueError):
    """design.toml is missing, not TOML, has a misspelt key or a value out of range."""


class TableError(SpecDecError, ValueError):
    """A table does not match its schema: wrong columns, a value out of range, a truncated file."""


class MixedDesign(TableError):
    """Rows of one table come from another measurement design, or from more than one."""


class TableMissing(SpecDecError, FileNotFoundError):
    """A table that should be there is not."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class NotebookError(SpecDecError, RuntimeError):
    """A notebook that cannot be run, or whose run did not do what the table promises. Names the notebook."""


class NotebookDamaged(NotebookError):
    """A notebook is missing or is not a notebook."""


class UntaggedNotebook(NotebookError):
    """Not exactly one cell tagged `parameters`."""


class DerivedParameter(NotebookError):
    """The parameters cell holds something other than `name = literal`."""


class UnknownParameter(NotebookError):
    """A parameter the notebook does not have."""


class ParameterType(NotebookError):
    """A parameter of another type than its default."""


class CellFailed(NotebookError):
    """A cell raised, left early, or its kernel died."""


class PromiseBroken(NotebookError):
    """A step ended without writing, or without renewing, a file that the table promises."""


class StaleTable(NotebookError):
    """A step wrote a table of another design, or one that does not match its schema."""


class NotebookTooLarge(NotebookError):
    """An executed copy too large to keep."""


class RunInProgress(SpecDecError, RuntimeError):
    """Another run is using the same data folder, or the same captured engine."""


class EnvironmentIncomplete(SpecDecError, ImportError):
    """A package that the study needs is not installed for the Python that was started."""


class CannotWrite(SpecDecError, OSError):
    """A folder is read-only or the disk is full."""


class BookError(SpecDecError, RuntimeError):
    """The book cannot be built: a misspelt key, a page without a kernel, a failing page, a private path in a page."""


class PromptTableInvalid(SpecDecError, ValueError):
    """families.toml or sources.toml: an unknown key, a missing one, a wrong type, a name given twice."""


class UnknownFamily(SpecDecError, KeyError):
    """No prompt family of that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class PromptTextDamaged(SpecDecError, RuntimeError):
    """A prompt text is missing or is not the one whose digest is in sources.toml."""


class PromptTooShort(SpecDecError, ValueError):
    """A family's text has fewer tokens than the context asks for."""


class ContextTooSmall(SpecDecError, ValueError):
    """The context has no room for the family's instruction, the chat template and some text."""


class TokenizerUnsuited(SpecDecError, ValueError):
    """A tokenizer or chat template with which a prompt of exact length cannot be built."""


class JobFailed(SpecDecError, RuntimeError):
    """A job's process ended without a result."""


class JobDamaged(SpecDecError, ValueError):
    """A job file whose checksum does not fit its content: truncated, or edited by hand."""
