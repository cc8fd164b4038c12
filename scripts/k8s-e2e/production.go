//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// older and newer are the versions of nats-server that checkUpgrade goes from and to.
const older, newer = "2.14.9", "2.15.2"

// servers is kubectl in the namespace of NATS.
func (w *world) servers(ctx context.Context, args ...string) (string, error) {
	return w.kubectl(ctx, append([]string{"-n", "nats"}, args...)...)
}

// applyBuilt applies a kustomization, which may take files from anywhere.
func (w *world) applyBuilt(ctx context.Context, dir string) {
	yaml := get(w.kubectl(ctx, "kustomize", "--load-restrictor=LoadRestrictionsNone", dir))
	get(w.kubectlWith(ctx, yaml, "apply", "-f", "-"))
}

// applySite applies a copy of the production overlay, filled in as its README says, with the sandbox as both services.
func (w *world) applySite(ctx context.Context) {
	site, outer := w.path("production", "site"), w.path("production")
	manifests := get(filepath.Rel(site, filepath.Join(w.tree, "deploy/k8s")))
	text := get(os.ReadFile(filepath.Join(w.tree, "deploy/k8s/overlays/production/kustomization.yaml")))
	filled := strings.NewReplacer("components: []", "components: [../../components/toolbox]", "REGISTRY/", "localhost/", "VERSION", "dev",
		"- priority.yaml", "- ../../overlays/production/priority.yaml",
		"_URL=https://mandates.example.com", "_URL=http://sandbox:8085\n      - ALLOW_PLAIN_HTTP=true",
		"_URL=https://mail.example.com", "_URL=http://sandbox:8085\n      - ALLOW_PLAIN_HTTP=true").Replace(string(text))
	filled = strings.ReplaceAll(filled, "../../", manifests+"/")
	around := fmt.Sprintf("resources: [site, %s/overlays/sandbox/sandbox.yaml]\nnamespace: errand\n", strings.TrimPrefix(manifests, "../"))
	must(os.MkdirAll(site, 0o700))
	must(os.WriteFile(filepath.Join(site, "kustomization.yaml"), []byte(filled), 0o600))
	must(os.WriteFile(filepath.Join(outer, "kustomization.yaml"), []byte(around), 0o600))
	w.applyBuilt(ctx, outer)
}

// userOf matches a line of nats-values.example.yaml: the server's variable, and the key of the user's password in the Secret.
var userOf = regexp.MustCompile(`(?m)^    ([A-Z_]+): \{ valueFrom: \{ secretKeyRef: \{ name: nats-users, key: ([a-z-]+) `)

// secrets makes what the two examples of the production overlay ask for, and returns each NATS user's password.
func (w *world) secrets(ctx context.Context) map[string]string {
	overlay := filepath.Join(w.tree, "deploy/k8s/overlays/production")
	passwords, users := map[string]string{}, []string{"create", "secret", "generic", "nats-users"}
	for _, m := range userOf.FindAllSubmatch(get(os.ReadFile(filepath.Join(overlay, "nats-values.example.yaml"))), -1) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		passwords[string(m[2])] = hex.EncodeToString(key)
		users = append(users, "--from-literal="+string(m[1])+"="+passwords[string(m[2])])
	}
	w.ca.leaf("nats", "nats", "", "nats.nats.svc.cluster.local", "*.nats-headless.nats.svc.cluster.local")
	get(w.servers(ctx, users...))
	get(w.servers(ctx, "create", "secret", "generic", "nats-tls", "--from-file=tls.crt="+w.pki("nats.crt"),
		"--from-file=tls.key="+w.pki("nats.key"), "--from-file=ca.crt="+w.pki("ca.crt")))
	get(w.k(ctx, "create", "configmap", "nats-ca", "--from-file=ca.crt="+w.pki("ca.crt")))

	known := map[string]string{"api-token": "sandbox-token", "portal-key": "sandbox-portal", "checksum-secret": "sandbox-checksum",
		"api-key": "sandbox-key"} // as in overlays/sandbox
	var filled strings.Builder
	user := ""
	example := bufio.NewScanner(bytes.NewReader(get(os.ReadFile(filepath.Join(overlay, "secrets.example.yaml")))))
	for example.Scan() {
		line := example.Text()
		if name, is := strings.CutPrefix(line, "  name: "); is {
			user = strings.Replace(name, "errand-provision", "provisioner", 1)
		}
		if key, _, is := strings.Cut(strings.TrimSpace(line), ": CHANGE-ME"); is {
			name := strings.Replace(key, "nats-password", user, 1)
			line = "  " + key + ": " + cmp.Or(known[key], passwords[name], strings.Repeat("0123456789abcdef", 4))
		}
		fmt.Fprintln(&filled, line)
	}
	get(w.kubectlWith(ctx, filled.String(), "apply", "--server-side", "-f", "-"))
	return passwords
}

// volumes makes empty disks for the servers of NATS and for backups: directories of this machine.
func (w *world) volumes(ctx context.Context, names ...string) {
	var yaml strings.Builder
	yaml.WriteString(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: Immediate
`)
	for _, claim := range names {
		dir := w.path("volumes", filepath.Base(claim))
		// Open to all: no ownership is changed on this kind of volume.
		must(errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o777)))
		namespace, name, _ := strings.Cut(claim, "/")
		fmt.Fprintf(&yaml, `---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 50Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  hostPath: {path: %s}
  claimRef: {namespace: %s, name: %s}
`, name, dir, namespace, name)
	}
	get(w.kubectlWith(ctx, yaml.String(), "apply", "--server-side", "-f", "-"))
}

// disks are the claims of the servers of NATS.
var disks = []string{"nats/data-nats-0", "nats/data-nats-1", "nats/data-nats-2"}

// startServers starts three servers of NATS with empty disks.
func (w *world) startServers(ctx context.Context) {
	w.volumes(ctx, disks...)
	w.applyBuilt(ctx, filepath.Join(w.tree, directory, "production"))
	get(w.servers(ctx, "rollout", "status", "statefulset/nats", "--timeout=180s"))
}

// provision runs the Job that makes the streams, again.
func (w *world) provision(ctx context.Context) {
	get(w.k(ctx, "delete", "job", "errand-provision", "--ignore-not-found"))
	w.applySite(ctx)
	w.waitComplete(ctx, "errand-provision")
}

// waitComplete waits for the success of a Job; the error has what its pods wrote.
func (w *world) waitComplete(ctx context.Context, job string) {
	_, err := w.k(ctx, "wait", "--for=condition=complete", "job/"+job, "--timeout=120s")
	if err != nil {
		logs, _ := w.k(ctx, "logs", "--tail=20", "--prefix", "-l", "batch.kubernetes.io/job-name="+job)
		must(fmt.Errorf("%w\n%s", err, logs))
	}
}

// checkProduction replaces everything by the production overlay, and runs an enrollment and a message.
func checkProduction(ctx context.Context, w *world) {
	get(w.kubectl(ctx, "delete", "namespace", namespace, "--timeout=180s"))
	for _, name := range []string{"nats", namespace} {
		get(w.kubectl(ctx, "create", "namespace", name))
	}
	get(w.kubectl(ctx, "apply", "-f", filepath.Join(w.tree, "deploy/k8s/overlays/production/priority.yaml")))
	passwords := w.secrets(ctx)
	w.startServers(ctx)
	w.volumes(ctx, namespace+"/errand-backup")
	w.provision(ctx)
	get(w.k(ctx, "scale", "deployment", "toolbox", "--replicas=1"))
	w.waitSettled(ctx)
	w.connect(passwords)
	w.runOne(ctx, "kept")
}

// runOne has an enrollment and a message succeed, once, however often it is called with a name.
func (w *world) runOne(ctx context.Context, name string) {
	b := &batch{name: name}
	must(errors.Join(w.enroll(ctx, b), w.mail(ctx, b, 10)))
	w.succeed(ctx, b, time.Minute)
}

// checkBackup saves the streams, loses every disk, and restores them as docs/on-call/disaster.md says.
func checkBackup(ctx context.Context, w *world) {
	get(w.k(ctx, "create", "job", "backup", "--from=cronjob/errand-backup"))
	w.waitComplete(ctx, "backup")
	get(w.k(ctx, "scale", "--replicas=0", "deployment", "log-poller", "mandate-consumer", "mail-consumer"))
	w.waitSettled(ctx)
	get(w.servers(ctx, "delete", "statefulsets,persistentvolumeclaims", "--all", "--timeout=120s"))
	for _, claim := range disks {
		get(w.kubectl(ctx, "delete", "persistentvolume", filepath.Base(claim)))
	}
	w.startServers(ctx)
	toolbox := func(ctx context.Context, script string) error {
		_, err := w.k(ctx, "exec", "deployment/toolbox", "--", "sh", "-ec", script)
		return err
	}
	must(until(ctx, time.Minute, func(ctx context.Context) error { return toolbox(ctx, "nats account info") }))
	must(toolbox(ctx, `for s in MANDATE_EVENTS MAIL_EVENTS MAIL_DELIVERIES DEAD_LETTERS AUDIT KEYS; do nats stream restore /backup/2*/$s; done`))
	w.provision(ctx) // which also starts the programs
	w.waitSettled(ctx)
	w.runOne(ctx, "fresh")
	w.runOne(ctx, "kept") // as their publisher repeats it: nothing is run again
}

// checkUpgrade replaces the programs one by one under load, and then the servers of NATS by a newer version.
func checkUpgrade(ctx context.Context, w *world) {
	b := w.underLoad(ctx, "upgrade", func() {
		before := w.repeated(ctx)
		get(w.k(ctx, "rollout", "restart", "deployment/log-poller", "deployment/mandate-consumer", "deployment/mail-consumer"))
		w.waitSettled(ctx)
		if after := w.repeated(ctx); after != before {
			must(fmt.Errorf("%d requests were delivered again", after-before))
		}
		get(w.servers(ctx, "set", "image", "statefulset/nats", "nats=nats:"+newer))
		get(w.servers(ctx, "rollout", "status", "statefulset/nats", "--timeout=240s"))
	})
	w.succeed(ctx, b, 3*time.Minute)
}
