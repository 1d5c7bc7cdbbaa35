"""A trained agent as one file that acts without Proximo: ONNX, or a program of torch.export."""
