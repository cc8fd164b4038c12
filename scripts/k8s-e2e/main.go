//go:build linux

// Command k8s-e2e proves the manifests and the images on a real Kubernetes: control plane, one node with containerd
// and kubelet, kube-proxy, CoreDNS and KEDA, all built from source by Go and run in namespaces of their own.
//
//	build     the binaries, once, into the user's cache
//	validate  etcd and kube-apiserver: does the API take every overlay and component?
//	prove     the whole: deploy the sandbox overlay, break things, look at what was really done
//	up, down  the same cluster to look around in; remove what a killed run left
package main

import "errand/internal/app"

func main() {
	app.Main("k8s-e2e", "Prove the manifests and images on a real Kubernetes on this machine. Needs no registry.", new(cli))
}

type cli struct {
	Prove    prove    `cmd:"" default:"withargs" help:"Deploy the sandbox overlay on a real cluster and try to break it. Needs root."`
	Validate validate `cmd:"" help:"Ask a real API server whether it takes every overlay and component. Needs no root."`
	Build    build    `cmd:"" help:"Build Kubernetes, KEDA, CoreDNS and nats-server from source, once."`
	Up       up       `cmd:"" help:"Start the cluster with the sandbox overlay and keep it until Ctrl-C."`
	Down     down     `cmd:"" help:"End a run that is at work, and remove what a killed one left."`
	Inside   inside   `cmd:"" hidden:"" help:"The part that runs in the namespaces."`
}
