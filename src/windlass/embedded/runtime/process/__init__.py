"""Pods as processes of this machine (`windlass up --gpus real`): no images, real GPUs, real exit codes."""
