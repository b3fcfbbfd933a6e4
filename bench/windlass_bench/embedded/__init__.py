"""`windlass bench embedded`: the embedded API server beside a real kube-apiserver with etcd, on the same requests."""
