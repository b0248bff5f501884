"""Agreement, cost, latency and memory of compression on CIFAR-10.

    python -m benchmarks preserve agreement --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve parts     --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve budgets   --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve distill   --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve tried     --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve cost      --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve loop      --data DIR --weights DIR
    python -m benchmarks preserve latency   --data DIR --weights DIR [--device cuda]
    python -m benchmarks preserve memory    --data DIR --weights DIR

`--data` has `test.parquet` and `train.parquet` (columns `img`, with encoded images, and `label`).
`--weights` has `<network>-cifar10.safetensors`. As in the paper, 1,000 random test images without
labels are the calibration set and the other 9,000 are for testing; the seed draws them. Results are
written to `benchmarks/results/preserve-<measurement>-<device>.json` and `.md`.

The network `digits` of the demo needs neither `--data` nor `--weights`. With `--merge`, nothing is
measured: rows of several result files, which were written with `--suffix`, become one file.
"""
