"""Detectors of the YOLO family, by their published layouts: C2f, C3k2, SPPF, PSA, PAN, DFL."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Conv(nn.Module):
    """A convolution without a bias, a batch norm and SiLU."""

    def __init__(
        self, a: int, b: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(b, eps=1e-3)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c: int, shortcut: bool = True, inner: int | None = None) -> None:
        super().__init__()
        inner = c if inner is None else inner
        self.cv1, self.cv2, self.add = Conv(c, inner, 3), Conv(inner, c, 3), shortcut

    def forward(self, x: Tensor) -> Tensor:
        return x + self.cv2(self.cv1(x)) if self.add else self.cv2(self.cv1(x))


class C3(nn.Module):
    """Two branches of one input: blocks, and a shortcut past them."""

    def __init__(self, a: int, b: int, n: int = 1, shortcut: bool = True) -> None:
        super().__init__()
        c = b // 2
        self.cv1, self.cv2, self.cv3 = Conv(a, c), Conv(a, c), Conv(2 * c, b)
        self.m = nn.Sequential(*(Bottleneck(c, shortcut) for _ in range(n)))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class C2f(nn.Module):
    """One convolution cut into halves; all results of a chain of blocks are concatenated."""

    def __init__(
        self,
        a: int,
        b: int,
        n: int = 1,
        shortcut: bool = True,
        block: Callable[[int, bool], nn.Module] = Bottleneck,
    ) -> None:
        super().__init__()
        self.c = b // 2
        self.cv1, self.cv2 = Conv(a, 2 * self.c), Conv((2 + n) * self.c, b)
        self.m = nn.ModuleList(block(self.c, shortcut) for _ in range(n))

    def halves(self, x: Tensor) -> list[Tensor]:
        return list(self.cv1(x).chunk(2, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.halves(x)
        y.extend(m(y[-1]) for m in self.m)
        return self.cv2(torch.cat(y, 1))


class C2fSplit(C2f):
    """The same with the sizes of the halves written out."""

    def halves(self, x: Tensor) -> list[Tensor]:
        return list(self.cv1(x).split((self.c, self.c), 1))


class C2fSlice(C2f):
    """The same with slices."""

    def halves(self, x: Tensor) -> list[Tensor]:
        y = self.cv1(x)
        return [y[:, : self.c], y[:, self.c :]]


def C3k2(a: int, b: int, n: int = 1, shortcut: bool = True) -> C2f:
    """A C2f whose blocks are C3 blocks."""
    return C2f(a, b, n, shortcut, lambda c, add: C3(c, c, 2, add))


class SPPF(nn.Module):
    """Maxima over windows of several sizes, made by pooling again and again."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(a, a // 2), Conv(a // 2 * 4, b)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = [self.cv1(x)]
        y.extend(self.m(y[-1]) for _ in range(3))
        return self.cv2(torch.cat(y, 1))


class SPPELAN(nn.Module):
    """The same with one pooling layer per size."""

    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__()
        self.c = c
        self.cv1, self.cv5 = Conv(a, c), Conv(4 * c, b)
        self.cv2, self.cv3, self.cv4 = (nn.MaxPool2d(5, 1, 2) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = [self.cv1(x)]
        y.extend(pool(y[-1]) for pool in (self.cv2, self.cv3, self.cv4))
        return self.cv5(torch.cat(y, 1))


class Attention(nn.Module):
    """Attention between positions, with queries, keys and values in one convolution."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, dim // heads
        self.key_dim = self.head_dim // 2
        self.scale = self.key_dim**-0.5
        self.qkv = Conv(dim, dim + 2 * heads * self.key_dim, act=False)
        self.proj = Conv(dim, dim, act=False)
        self.pe = Conv(dim, dim, 3, groups=dim, act=False)

    def forward(self, x: Tensor) -> Tensor:
        B, C, H, W = x.shape
        qkv = self.qkv(x).view(B, self.num_heads, self.key_dim * 2 + self.head_dim, H * W)
        q, k, v = qkv.split([self.key_dim, self.key_dim, self.head_dim], 2)
        attention = ((q.transpose(-2, -1) @ k) * self.scale).softmax(-1)
        y = (v @ attention.transpose(-2, -1)).view(B, C, H, W)
        return self.proj(y + self.pe(v.reshape(B, C, H, W)))


class C2PSA(nn.Module):
    """Attention and two convolutions, with residuals, on one half of a convolution's output."""

    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.c = c // 2
        self.cv1, self.cv2 = Conv(c, 2 * self.c), Conv(2 * self.c, c)
        self.attn = Attention(self.c, heads)
        self.ffn = nn.Sequential(Conv(self.c, 2 * self.c), Conv(2 * self.c, self.c, act=False))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.cv1(x).split((self.c, self.c), 1)
        b = b + self.attn(b)
        b = b + self.ffn(b)
        return self.cv2(torch.cat((a, b), 1))


class DFL(nn.Module):
    """The mean of a distribution over bins, by a convolution whose weights are 0, 1, 2, ..."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.bins = bins
        self.conv = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)
        self.conv.weight.data[:] = torch.arange(bins).reshape(1, bins, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, _, anchors = x.shape
        p = x.view(b, 4, self.bins, anchors).transpose(2, 1).softmax(1)
        return self.conv(p).view(b, 4, anchors)


class Detect(nn.Module):
    """Separate branches for boxes and classes on every scale; boxes relative to anchor points."""

    def __init__(
        self, classes: int, widths: tuple[int, ...], bins: int, strides: list[int]
    ) -> None:
        super().__init__()
        self.nc, self.no, self.bins, self.strides = classes, classes + 4 * bins, bins, strides
        boxes = max(bins, widths[0] // 4, 4 * bins)
        scores = max(widths[0], min(classes, 100))
        self.cv2 = nn.ModuleList(
            nn.Sequential(Conv(c, boxes, 3), Conv(boxes, boxes, 3), nn.Conv2d(boxes, 4 * bins, 1))
            for c in widths
        )
        self.cv3 = nn.ModuleList(
            nn.Sequential(
                Conv(c, scores, 3), Conv(scores, scores, 3), nn.Conv2d(scores, classes, 1)
            )
            for c in widths
        )
        self.dfl = DFL(bins)

    def forward(self, x: list[Tensor]) -> Tensor:
        maps = [
            torch.cat((boxes(y), scores(y)), 1)
            for boxes, scores, y in zip(self.cv2, self.cv3, x, strict=True)
        ]
        points, strides = self.anchors(maps)
        flat = torch.cat([y.view(y.shape[0], self.no, -1) for y in maps], 2)
        box, cls = flat.split((4 * self.bins, self.nc), 1)
        left_top, right_bottom = self.dfl(box).chunk(2, 1)
        first, second = points - left_top, points + right_bottom
        centred = torch.cat(((first + second) / 2, second - first), 1)
        return torch.cat((centred * strides, cls.sigmoid()), 1)

    def anchors(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the centres of all cells (2, anchors) and their strides (1, anchors)."""
        points, strides = [], []
        for y, stride in zip(maps, self.strides, strict=True):
            h, w = y.shape[-2:]
            rows = torch.arange(h, dtype=y.dtype) + 0.5
            columns = torch.arange(w, dtype=y.dtype) + 0.5
            grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"))
            points.append(grid.reshape(2, -1))
            strides.append(torch.full((1, h * w), float(stride), dtype=y.dtype))
        return torch.cat(points, 1), torch.cat(strides, 1)


class YOLOv8(nn.Module):
    """The layout of YOLOv8: backbone, SPPF, a path of features up and down again, three heads."""

    def __init__(
        self,
        c: int = 16,
        depths: tuple[int, int] = (1, 2),
        classes: int = 80,
        bins: int = 16,
        most: int = 1024,
    ) -> None:
        super().__init__()
        w = [min(c * 2**i, most) for i in range(5)]
        n, deep = depths
        self.stem, self.p2 = Conv(3, w[0], 3, 2), Conv(w[0], w[1], 3, 2)
        self.c2 = C2f(w[1], w[1], n)
        self.p3, self.c3 = Conv(w[1], w[2], 3, 2), C2f(w[2], w[2], deep)
        self.p4, self.c4 = Conv(w[2], w[3], 3, 2), C2f(w[3], w[3], deep)
        self.p5, self.c5 = Conv(w[3], w[4], 3, 2), C2f(w[4], w[4], n)
        self.sppf = SPPF(w[4], w[4])
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up4 = C2f(w[4] + w[3], w[3], n, shortcut=False)
        self.up3 = C2f(w[3] + w[2], w[2], n, shortcut=False)
        self.down3, self.down4 = Conv(w[2], w[2], 3, 2), Conv(w[3], w[3], 3, 2)
        self.out4 = C2f(w[2] + w[3], w[3], n, shortcut=False)
        self.out5 = C2f(w[3] + w[4], w[4], n, shortcut=False)
        self.head = Detect(classes, (w[2], w[3], w[4]), bins, [8, 16, 32])

    def forward(self, x: Tensor) -> Tensor:
        x3 = self.c3(self.p3(self.c2(self.p2(self.stem(x)))))
        x4 = self.c4(self.p4(x3))
        x5 = self.sppf(self.c5(self.p5(x4)))
        y4 = self.up4(torch.cat((self.up(x5), x4), 1))
        y3 = self.up3(torch.cat((self.up(y4), x3), 1))
        y4 = self.out4(torch.cat((self.down3(y3), y4), 1))
        y5 = self.out5(torch.cat((self.down4(y4), x5), 1))
        return self.head([y3, y4, y5])


class Blocks(nn.Module):
    """One block between two convolutions, and a classifier."""

    def __init__(self, block: nn.Module, width: int, out: int) -> None:
        super().__init__()
        self.stem, self.block = Conv(3, width, 3, 2), block
        self.head = nn.Linear(out, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))
