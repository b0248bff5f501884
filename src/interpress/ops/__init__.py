"""Operator rules: how every operator moves channels, and what it costs.

One file per operator family. The registry imports all files of this package on first use.

- `pointwise`: activations, sums, products, casts, dropout
- `products`: linear layers, matrix products, einsum
- `convolution`: convolutions: plain, transposed, grouped, depthwise
- `attention`: fused attention
- `normalization`: batch, instance, group, layer and RMS norms
- `pooling`: pooling, resizing, sampling
- `reduction`: sums, means, maxima, softmax, sorting
- `shape`: views, permutations and other changes of shape
- `movement`: slicing, concatenation, repetition, padding, flips, pixel shuffle
- `indexing`: embeddings, advanced indexing, gather
- `making`: operators that create tensors, or use only the shape of their input
- `recurrent`: LSTM, GRU, RNN
"""
