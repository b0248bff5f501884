"""Train the network of the demo, and write its weights and images into the package.

    python -m benchmarks.digit_net

Data: *Optical Recognition of Handwritten Digits* (E. Alpaydin, C. Kaynak, 1998, UCI Machine
Learning Repository, CC BY 4.0), as distributed with scikit-learn. The network is trained on 900
images; the other 897 go into the package.
"""

from __future__ import annotations

import torch
from rich.progress import track
from safetensors.torch import save_file
from torch import nn

from interpress.demo import ASSETS, DigitNet

_TRAINING_IMAGES, _EPOCHS = 900, 60


def main() -> None:
    """Train for about a minute, and write both files."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels, dtype=torch.uint8)[order].reshape(-1, 1, 8, 8)
    targets = torch.tensor(labels)[order]
    torch.manual_seed(0)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _EPOCHS)
    inputs = images[:_TRAINING_IMAGES].float() / 16
    for _ in track(range(_EPOCHS), "training"):
        for batch in torch.randperm(_TRAINING_IMAGES).split(50):
            noisy = inputs[batch] + 0.1 * torch.randn(len(batch), 1, 8, 8)
            loss = nn.functional.cross_entropy(model(noisy), targets[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    model.eval()
    test_inputs, test_labels = images[_TRAINING_IMAGES:], targets[_TRAINING_IMAGES:]
    with torch.no_grad():
        accuracy = (model(test_inputs.float() / 16).argmax(1) == test_labels).float().mean()
    print(f"accuracy {accuracy:.1%} on {len(test_inputs)} images that were not trained on")
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, ASSETS / "digit-net.safetensors")
    digits = {"images": test_inputs.clone(), "labels": test_labels.to(torch.uint8)}
    save_file(digits, ASSETS / "digits.safetensors")


if __name__ == "__main__":
    main()
