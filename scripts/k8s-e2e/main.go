//go:build linux

// Command k8s-e2e tests the manifests and the images on a real Kubernetes: control plane, one node with containerd
// and kubelet, kube-proxy and CoreDNS, all built from source by Go and run in their own namespaces.
//
//	build     build the binaries, once, into the user's cache
//	validate  with etcd and kube-apiserver only: does the API accept every overlay and component?
//	prove     deploy the sandbox overlay, break things, check what was really done
package main

import "errand/internal/programs"

func main() {
	programs.Main("k8s-e2e", "Test the manifests and images on a real Kubernetes, started on this machine. Needs no registry.",
		new(cli))
}

type cli struct {
	Prove    prove    `cmd:"" default:"withargs" help:"Deploy the sandbox overlay and try to break it. Needs root."`
	Validate validate `cmd:"" help:"Ask a real API server whether it accepts every overlay and component. Needs no root."`
	Build    build    `cmd:"" help:"Build Kubernetes, CoreDNS and nats-server from source, once."`
	Inside   inside   `cmd:"" hidden:"" help:"The part that runs in the namespaces."`
}
