"""An attack on ARFL's weights and on the rule behind them at once; a plug-in of combined.toml."""

from fedsim import Attack
from fedsim.attacks import fake_loss, ipm


def ipm_with_false_losses() -> Attack:
    """Malicious clients send what `ipm` sends, and report a hundredth of their loss, so that ARFL trusts them."""
    return ipm()._replace(forge_report=fake_loss(scale=0.01).forge_report)
