.DEFAULT_GOAL := help
.PHONY: help demo build test race lint fmt fuzz bench images k8s-e2e ci clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## the whole house on this machine: broker, sandbox, programs, one story
	go run ./cmd/errand demo

build: ## every program, into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

test: ## every test
	go test -timeout 20m ./...

race: ## every test that the race detector can say something of
	.ci/run race

lint: ## the pinned linter, built from source the first time
	.ci/run lint

fmt: ## lay the source out
	CGO_ENABLED=0 go tool -modfile=tools/go.mod golangci-lint fmt

fuzz: ## each fuzz target for 3 seconds, or FUZZ=60
	.ci/run fuzz

bench: ## measure throughput, processor time and memory
	go run ./bench

images: ## container images of every program, into dist/, tagged dev or VERSION=
	go run -C deploy/images . --version "$(or $(VERSION),dev)"

k8s-e2e: ## prove images and manifests on a real Kubernetes; needs root, builds it the first time
	go run ./scripts/k8s-e2e

ci: ## what a change must pass
	.ci/run

clean: ## remove what was built
	rm -rf bin dist
	go clean -testcache
