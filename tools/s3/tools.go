//go:build tools

// Package tools names the program that go.mod has the versions of.
package tools

import _ "github.com/minio/minio"
