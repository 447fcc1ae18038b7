"""GODIN with dropout before its head, which evaluation and export drop."""

from portcullis_training.methods.godin import Godin


class GodinDropout(Godin):
    """The share that is dropped is our choice; the paper's tables do not say theirs."""

    name = "godin_dropout"
    title = "GODIN, dropout"
    dropout = 0.3


METHOD = GodinDropout()
