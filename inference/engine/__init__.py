"""The inference engine: token ids in, token ids out, in a process of its own.

The node's side (`config`, `client`) imports no torch; what the process runs (`worker`) does so only when a real model is loaded.
"""
