"""Files: a result folder, an analysis, a factor stream; safetensors and JSON, never pickle."""

from interpress.storage.stream_file import load_stream, save_stream

__all__ = ["load_stream", "save_stream"]
