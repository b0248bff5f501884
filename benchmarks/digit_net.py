"""Train the network that the demo carries, and write the files it comes with.

    python -m benchmarks.digit_net

Data: *Optical Recognition of Handwritten Digits* (E. Alpaydin, C. Kaynak, 1998, UCI Machine
Learning Repository, CC BY 4.0), as scikit-learn ships it. 900 images train, the other 897 go into
the package.
"""

from __future__ import annotations

import torch
from rich.progress import track
from safetensors.torch import save_file
from torch import nn

from interpress.demo import ASSETS, DigitNet

_TRAINING, _EPOCHS = 900, 60


def main() -> None:
    """Train for a minute, write both files."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels, dtype=torch.uint8)[order].reshape(-1, 1, 8, 8)
    targets = torch.tensor(labels)[order]
    torch.manual_seed(0)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _EPOCHS)
    inputs = images[:_TRAINING].float() / 16
    for _ in track(range(_EPOCHS), "training"):
        for chosen in torch.randperm(_TRAINING).split(50):
            noisy = inputs[chosen] + 0.1 * torch.randn(len(chosen), 1, 8, 8)
            loss = nn.functional.cross_entropy(model(noisy), targets[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    model.eval()
    others = images[_TRAINING:].float() / 16
    with torch.no_grad():
        accuracy = (model(others).argmax(1) == targets[_TRAINING:]).float().mean()
    print(f"{accuracy:.1%} of {len(others)} other images")
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, ASSETS / "digit-net.safetensors")
    held = {"images": images[_TRAINING:].clone(), "labels": targets[_TRAINING:].to(torch.uint8)}
    save_file(held, ASSETS / "digits.safetensors")


if __name__ == "__main__":
    main()
