//go:build linux

// Command k8s-e2e tests the manifests and the images on a real Kubernetes: control plane, one node with containerd
// and kubelet, kube-proxy and CoreDNS, all built from source by Go and run in their own namespaces.
//
//	validate  with etcd and kube-apiserver only: does the API accept every overlay and component?
//	prove     deploy the overlays, break things, check what was really done
package main

import "errand/internal/programs"

func main() {
	programs.Main("k8s-e2e", "Test the manifests and images on a real Kubernetes, started on this machine. Needs no registry.",
		new(cli))
}

type cli struct {
	Prove    prove    `cmd:"" default:"withargs" help:"Deploy the overlays and try to break them. Needs root."`
	Validate validate `cmd:"" help:"Ask a real API server whether it accepts every overlay and component. Needs no root."`
	Inside   inside   `cmd:"" hidden:"" help:"The part that runs in the namespaces."`
}

// failure is the panic with which must ends a command.
type failure struct{ error }

// must ends the command with an error, as a test ends with Fatal. Use it only on the command's goroutine.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// get returns a value, unless its error ends the command.
func get[T any](value T, err error) T {
	must(err)
	return value
}

// failed makes the error with which must ended a command the one that it returns.
func failed(err *error) {
	switch end := recover().(type) {
	case nil:
	case failure:
		*err = end.error
	default:
		panic(end)
	}
}
