"""The metrics that are recorded at each evaluation, and how they are shown and compared."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Metric:
    """A number of each run at each evaluation."""

    name: str  # also in the names of files and of columns of summary.csv
    title: str
    higher_is_better: bool = True
    is_percentage: bool = True
    """Whether it is recorded as 0 to 1 and shown in percent."""

    @property
    def column(self) -> str:
        """The column of the rounds."""
        return f"test_{self.name}" if self.name in ("accuracy", "loss") else self.name

    @property
    def on_validation(self) -> "Metric":
        return replace(self, name=f"validation_{self.name}")

    @property
    def scale(self) -> float:
        """Factor from what is recorded to what is shown."""
        return 100.0 if self.is_percentage else 1.0

    @property
    def digits(self) -> int:
        """Decimals that are shown."""
        return 2 if self.is_percentage else 4

    @property
    def label(self) -> str:
        return self.title + (" (%)" if self.is_percentage else "")

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.higher_is_better else -1


ACCURACY = Metric("accuracy", "Test accuracy")
LOSS = Metric("loss", "Test loss", higher_is_better=False, is_percentage=False)
BACKDOOR = Metric("backdoor_success", "Backdoor success", higher_is_better=False)
CORRUPTED_WEIGHT = Metric("corrupted_weight", "Weight of corrupted clients", higher_is_better=False)
EXCESS = Metric("byzantine_excess", "Rounds with more corrupted clients than f", higher_is_better=False)
"""Of a whole run, by `compare.byzantine_excess`; at an evaluation, of the rounds since the one before."""
OF_CLIENTS = (
    Metric("accuracy_p10", "Accuracy, 10th percentile of clients"),
    Metric("accuracy_p50", "Accuracy, median client"),
    Metric("accuracy_p90", "Accuracy, 90th percentile of clients"),
)
METRICS = (
    ACCURACY,
    LOSS,
    Metric("validation_accuracy", "Validation accuracy"),
    Metric("validation_loss", "Validation loss", higher_is_better=False, is_percentage=False),
    CORRUPTED_WEIGHT,
    EXCESS,
    BACKDOOR,
    *OF_CLIENTS,
)
DETECTION = (
    Metric("weight_auc", "AUC of weights"),
    Metric("exclusion_precision", "Precision of excluded clients"),
    Metric("exclusion_recall", "Recall of excluded clients"),
    Metric("exclusion_false_positive_rate", "False positive rate of excluded clients", higher_is_better=False),
)
"""Metrics of a whole run, by `compare.detection`."""
