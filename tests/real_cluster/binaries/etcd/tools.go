//go:build tools

// Package tools names the etcd server, so that its dependencies are pinned in go.mod and go.sum.
package tools

import _ "go.etcd.io/etcd/server/v3"
