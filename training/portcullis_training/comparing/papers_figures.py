"""What the paper measured on CIFAR-10 (Macêdo, Zanchettin, Ludermir 2022, arXiv 2205.05874), to stand beside ours."""

import re

_CIFAR10 = re.compile(r"(?<![a-z0-9])cifar10(?![0-9])")  # as a name or in that of a file, but not CIFAR-100
PAPERS_IMAGES = {
    "paper": "It has CIFAR-10, CIFAR-100 (near: each other; far: TinyImageNet, LSUN; very far: SVHN) and TinyImageNet "
    "(near: ImageNet-O; far: CIFAR-10, CIFAR-100; very far: SVHN)",
    "ablation": "Its ablation is of CIFAR-100 alone (near: CIFAR-10; far: TinyImageNet, LSUN; very far: SVHN)",
}
"""By table."""
RESIZED = (
    "Its TinyImageNet and LSUN images were resized without antialiasing, which leaves artefacts that make them easy to "
    "tell; figures against other images of these sets cannot be compared with them."
)
CIFAR10 = """\
## The paper's figures

CIFAR-10, 300 epochs, mean ± deviation of five runs; near is CIFAR-100 (AUPR out), far are TinyImageNet and LSUN
(AUROC), very far is SVHN (AUPR out). MPS near and MMLES far for DisMax. A dash: not in the paper.

| network | method | accuracy | efficiency | ECE | CIFAR-100 | TinyImageNet | LSUN | SVHN |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| DenseNet-BC-100 | SoftMax | 95.2 ± 0.1 | 100 | 0.0043 ± 0.0008 | 86.2 ± 0.5 | 92.9 ± 1.6 | 94.7 ± 0.9 | 93.7 ± 3.3 |
| | Scaled Cosine | 94.9 ± 0.1 | 100 | – | – | 98.8 ± 0.3 | 99.2 ± 0.2 | – |
| | GODIN, preprocessing | 95.0 ± 0.1 | 26.0 | – | – | 99.1 ± 0.1 | 99.4 ± 0.1 | – |
| | IsoMax+ | 95.1 ± 0.1 | 100 | 0.0043 ± 0.0012 | 90.4 ± 0.3 | 97.6 ± 0.9 | 98.3 ± 0.5 | 99.7 ± 0.1 |
| | DisMax | 95.1 ± 0.1 | 100 | 0.0045 ± 0.0021 | 90.0 ± 0.2 | 98.0 ± 0.5 | 98.4 ± 0.3 | 99.9 ± 0.1 |
| ResNet-34 | SoftMax | 95.6 ± 0.1 | 100 | 0.0060 ± 0.0013 | 85.3 ± 0.4 | 89.7 ± 2.8 | 92.4 ± 1.6 | 94.9 ± 1.0 |
| | GODIN | 95.1 ± 0.1 | 100 | – | – | 95.6 ± 0.5 | 97.6 ± 0.2 | – |
| | IsoMax+ | 95.5 ± 0.1 | 100 | 0.0053 ± 0.0007 | 90.1 ± 0.3 | 95.1 ± 1.0 | 96.9 ± 0.6 | 98.7 ± 0.6 |
| | DisMax† | 96.7 ± 0.2 | 100 | 0.0058 ± 0.0008 | 90.3 ± 0.2 | 98.3 ± 0.3 | 99.5 ± 0.1 | 99.1 ± 0.3 |
| WRN-28-10 | SoftMax | 96.2 ± 0.1 | 100 | 0.0038 ± 0.0005 | 87.5 ± 0.3 | 92.6 ± 0.9 | 94.0 ± 0.7 | 95.3 ± 0.9 |
| | Deep Ensemble | 96.6 ± 0.1 | 10.3 | 0.0100 ± 0.0010 | 88.8 ± 1.0 | – | – | 96.4 ± 1.0 |
| | DUQ | 94.7 ± 0.1 | 45.0 | 0.0340 ± 0.0020 | 85.4 ± 1.0 | – | – | 97.3 ± 1.0 |
| | SNGP | 95.9 ± 0.1 | 62.5 | 0.0180 ± 0.0010 | 90.5 ± 1.0 | – | – | 99.0 ± 1.0 |
| | Scaled Cosine | 95.7 ± 0.1 | 100 | – | – | 97.7 ± 0.7 | 98.6 ± 0.3 | – |
| | IsoMax+ | 96.0 ± 0.1 | 100 | 0.0034 ± 0.0009 | 91.8 ± 0.1 | 96.6 ± 0.6 | 97.7 ± 0.4 | 99.7 ± 0.3 |
| | DisMax† | 97.0 ± 0.1 | 100 | 0.0043 ± 0.0008 | 90.1 ± 0.3 | 99.7 ± 0.1 | 99.9 ± 0.1 | 99.3 ± 0.3 |
"""


def is_cifar10(spec: str) -> bool:
    """Whether a data spec is of CIFAR-10, by its name or that of its files."""
    return _CIFAR10.search(spec) is not None
