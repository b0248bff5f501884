"""Exported programs (`torch.export`): reading one as a network, writing a smaller one."""
