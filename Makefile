.DEFAULT_GOAL := help
.PHONY: help demo build test test-all lint vulncheck fmt fuzz bench images k8s-e2e ci

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## everything on this machine: NATS, sandbox, programs, four requests
	go run ./cmd/errand demo

build: ## every program, into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

test: ## the quick tests, about a minute
	go test -short ./...

test-all: ## every test; some kill real programs and servers
	go test -timeout 20m ./...

lint: ## the pinned linter, built from source the first time
	.ci/run lint

vulncheck: ## known weaknesses in what is linked; needs the Go vulnerability database
	.ci/run vulncheck

fmt: ## format the source
	CGO_ENABLED=0 go tool -modfile=tools/go.mod golangci-lint fmt

fuzz: ## each fuzz target with 1000 inputs, or FUZZ=60 for a minute
	.ci/run fuzz

bench: ## compare with other ways to do the same; ARGS=--quick is rough, ARGS=--help says what else
	go run -C bench . $(ARGS)

images: ## container images of every program, into dist/, tagged dev or VERSION=
	go run -C deploy/images . --version "$(or $(VERSION),dev)"

k8s-e2e: ## test images and manifests on a real Kubernetes; needs root, builds it the first time
	go run -C scripts/k8s-e2e .

ci: ## everything that a change must pass
	.ci/run
