//go:build tools

// Package tools names Kueue, so that its dependencies are pinned in go.mod and go.sum.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
