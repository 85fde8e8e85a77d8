# SPDX-License-Identifier: MIT
"""What the ranks run. Imports neither torch nor diffusers, so that tests can be collected from it."""

from dataclasses import dataclass, field, replace

# The inputs of the small MiniMax-H3: with these audio tokens the packed sequence has 340 rows, which every degree here
# divides, or 339, which none does.
TEXT_ROWS, VIDEO_ROWS = 14, 288
EVEN_AUDIO, ODD_AUDIO = 38, 37


@dataclass(frozen=True)
class Case:
    """One forward of the small MiniMax-H3 under Ulysses of some degree; degree 1 is a single process."""

    degree: int
    heads: int = 4
    batch: int = 1
    audio_rows: int = EVEN_AUDIO
    anything: bool = False
    backend_set: str = "before"  # or "after" enable_parallelism

    def __str__(self) -> str:
        parts = [f"{self.degree} ranks", f"{self.heads} heads", f"batch {self.batch}", f"{self.packed_rows} rows"]
        parts += ["anything"] if self.anything else []
        return ", ".join([*parts, f"backend set {self.backend_set}"])

    @property
    def in_one_process(self) -> "Case":
        """The same model and inputs without context parallelism."""
        return replace(self, degree=1, anything=False, backend_set="before")

    @property
    def packed_rows(self) -> int:
        return TEXT_ROWS + self.audio_rows + VIDEO_ROWS

    @property
    def text_rows(self) -> int:
        """Rows of the text refiner's attention: its input is not split, so Ulysses joins one copy of each rank."""
        return TEXT_ROWS * self.degree

    @property
    def heads_of_each_rank(self) -> list[int]:
        """Ulysses gives all ranks the same number of heads; "anything" leaves the last what remains."""
        share = -(-self.heads // self.degree)
        return [min(share, self.heads - share * rank) for rank in range(self.degree)]


CASES = [
    Case(2),
    Case(2, backend_set="after"),
    Case(2, batch=2),
    Case(2, audio_rows=ODD_AUDIO, anything=True),
    Case(2, audio_rows=ODD_AUDIO, anything=True, heads=3, batch=2, backend_set="after"),
    Case(4),
    Case(4, audio_rows=ODD_AUDIO, anything=True, batch=2),
    Case(4, audio_rows=ODD_AUDIO, anything=True, heads=7, backend_set="after"),
]

COMPILED = CASES[0]


@dataclass(frozen=True)
class Call:
    """One attention call on shards of [batch, rows, heads, 128]."""

    degree: int
    rows: int
    heads: int
    batch: int
    anything: bool = False

    def __str__(self) -> str:
        parts = [f"{self.degree} ranks", f"{self.rows} rows", f"{self.heads} heads", f"batch {self.batch}"]
        return ", ".join([*parts, *(["anything"] if self.anything else [])])

    @property
    def in_one_process(self) -> "Call":
        return replace(self, degree=1, anything=False)


CALLS = [
    Call(2, rows=96, heads=4, batch=2),
    Call(2, rows=97, heads=3, batch=2, anything=True),
    Call(4, rows=128, heads=8, batch=1),
    Call(4, rows=130, heads=7, batch=1, anything=True),
]


@dataclass(frozen=True)
class Attempt:
    """A forward or a training step that is refused with `message`. `config`: the parallelism to enable."""

    degree: int
    config: dict[str, int | bool]
    message: str
    case: Case = field(default=Case(1))
    training: bool = False


# The kernel returns no log-sum-exp. `sage_hub` computes it with SDPA and refuses no ring.
RING_REFUSAL = "Ring attention is not supported for aiter sage attention, which returns no LSE. Use Ulysses."

ATTEMPTS = {
    "ring": Attempt(2, {"ring_degree": 2}, RING_REFUSAL),
    "ring anything": Attempt(2, {"ring_degree": 2, "ring_anything": True}, RING_REFUSAL),
    "unified": Attempt(4, {"ring_degree": 2, "ulysses_degree": 2}, RING_REFUSAL),
    "training": Attempt(
        2, {"ulysses_degree": 2}, "Backward pass is not implemented for Sage attention.", training=True
    ),
    # From here on in diffusers' and PyTorch's own words.
    "training anything": Attempt(
        2,
        {"ulysses_degree": 2, "ulysses_anything": True},
        "Backward pass for Ulysses Anything Attention in diffusers is not implemented yet.",
        training=True,
    ),
    "odd length": Attempt(
        2,
        {"ulysses_degree": 2},
        "Tensor size along dimension to be sharded must be divisible by mesh size",
        Case(1, audio_rows=ODD_AUDIO),
    ),
    "odd heads": Attempt(
        4,
        {"ulysses_degree": 4},
        "shape '[1, 14, 4, 1, 128]' is invalid for input of size 10752",
        Case(1, heads=6),
    ),
    "too few heads": Attempt(
        4,
        {"ulysses_degree": 4, "ulysses_anything": True},
        "Padding head num 3 should be less than new local head num 2",
        Case(1, heads=5),
    ),
}
