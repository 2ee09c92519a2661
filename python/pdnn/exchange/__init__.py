"""Models that leave and come: as ONNX and as C, from a description that knows nothing of `pdnn.nn`."""
