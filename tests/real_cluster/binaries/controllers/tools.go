//go:build tools

// Package tools names the controllers, so that their dependencies are pinned in go.mod and go.sum.
package tools

import (
	_ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
	_ "sigs.k8s.io/jobset"
	_ "sigs.k8s.io/lws/cmd"
)
