"""From a model to its channel spaces: capture, follow the labels, draw the conclusions."""
