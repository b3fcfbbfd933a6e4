//go:build tools

// Package tools names Helm, so that its dependencies are pinned in go.mod and go.sum.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
