"""Writes losses and metrics for TensorBoard during training. Aggregates only, as in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from florist.common.core.errors import ConfigurationError
from florist.common.storage.private_files import make_private_folder, restrict

if TYPE_CHECKING:
    from pathlib import Path

    from florist.common.training.history import History


class EventFiles:
    """TensorBoard event files of a run."""

    def __init__(self, directory: Path) -> None:
        """Write into `directory`.

        Raises:
            ConfigurationError: TensorBoard is not installed, or `directory` cannot be created.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - optional
        except ImportError:
            raise ConfigurationError(
                "training.tensorboard: TensorBoard is not installed; run "
                "`pip install 'florist[tensorboard]'`, or set it to false"
            ) from None
        try:
            make_private_folder(directory)
        except OSError as error:
            raise ConfigurationError(
                f"{directory}: cannot be created: {error.strerror}; fix the permissions, or set "
                "training.tensorboard to false"
            ) from None
        self._directory = directory
        self._writer = SummaryWriter(str(directory))
        self._steps = self._epochs = 0

    def update(self, history: History) -> None:
        """Write and flush what is new in the history; a resumed run writes all its steps again."""
        for step in range(self._steps, len(history.losses)):
            self._writer.add_scalar("train/loss", history.losses[step], step)
        for epoch in history.epochs[self._epochs :]:
            for name in ("loss", "auc", "ace", "log_loss"):
                if (value := getattr(epoch, name)) is not None:
                    self._writer.add_scalar(f"epoch/{name}", value, epoch.epoch)
        self._steps, self._epochs = len(history.losses), len(history.epochs)
        self._writer.flush()
        restrict(self._directory)  # TensorBoard creates its files with the usual permissions
