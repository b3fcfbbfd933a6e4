"""The kubelet's gRPC messages: device plugin v1beta1 and PodResources v1.

The `.proto` files are written from Kubernetes' public message definitions (field names and numbers are an interface;
Kubernetes is under the Apache License 2.0). `python tools/generate_protos.py` makes the modules beside them.
"""
