"""Seconds of a run."""

import dataclasses
import time


@dataclasses.dataclass
class Clock:
    """Seconds of a run over all its sessions.

    Attributes:
        wall: of earlier sessions, all in all.
        training: spent in updates.
        compiling: spent in compiling them.
        images: seen in updates.
        begin: when this session began.
    """

    wall: float = 0.0
    training: float = 0.0
    compiling: float = 0.0
    images: int = 0
    begin: float = dataclasses.field(default_factory=time.monotonic)

    def total(self) -> float:
        """Return the seconds of all sessions."""
        return self.wall + time.monotonic() - self.begin

    def record(self) -> dict[str, float]:
        """Return what a checkpoint keeps."""
        return {"wall": self.total(), "training": self.training, "compiling": self.compiling, "images": self.images}
