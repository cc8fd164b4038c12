//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The whole of KEDA links every cloud's SDK and takes more than twice the time of Kubernetes to compile. What is
// kept here is its own code, unchanged but for the places below: operator, adapter, and these scalers.
var keptScalers = map[string][]string{ // file: triggers
	"scaler.go":                     nil,
	"cpu_memory_scaler.go":          {"cpu", "memory"},
	"cron_scaler.go":                {"cron"},
	"kubernetes_workload_scaler.go": {"kubernetes-workload"},
	"metrics_api_scaler.go":         {"metrics-api"},
	"nats_jetstream_scaler.go":      {"nats-jetstream"},
}

// keptTrees are the folders of KEDA's module that are needed; config holds its definitions and its rights.
var keptTrees = []string{"go.mod", "go.sum", "apis", "cmd", "config", "controllers", "pkg", "version"}

// cut is what goes besides the scalers, by path: secret stores and event sinks of the clouds.
var cut = []string{
	"pkg/mock",
	"pkg/scalers/aws", "pkg/scalers/azure", "pkg/scalers/gcp", "pkg/scalers/kafka", "pkg/scalers/liiklus",
	"pkg/scalers/openstack", "pkg/scalers/splunk", "pkg/scalers/sumologic",
	"pkg/scaling/resolver/aws_secretmanager_handler.go", "pkg/scaling/resolver/azure_keyvault_handler.go",
	"pkg/scaling/resolver/gcp_secretmanager_handler.go", "pkg/scaling/resolver/hashicorpvault_handler.go",
	"pkg/eventemitter/azure_event_grid_topic_handler.go",
}

// trimKEDA copies KEDA from its module's folder to dir without what is not needed here.
func trimKEDA(module, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, tree := range keptTrees {
		if err := copyTree(filepath.Join(module, tree), filepath.Join(dir, tree)); err != nil {
			return fmt.Errorf("keda: %w", err)
		}
	}
	for _, path := range cut {
		path = filepath.Join(dir, path)
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("keda: has this version moved it? %w", err)
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "pkg/scalers/*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, kept := keptScalers[filepath.Base(file)]; !kept {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	for path, text := range map[string]string{"pkg/scalers/trimmed.go": scalersStub, "pkg/scaling/resolver/trimmed.go": resolverStub} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for path, change := range map[string]func(string) (string, error){
		"pkg/scaling/scalers_builder.go":          keepTriggers,
		"pkg/scaling/resolver/scale_resolvers.go": cutAzureKeys,
		"pkg/eventemitter/eventemitter.go":        cutEventGrid,
	} {
		if err := rewrite(filepath.Join(dir, path), change); err != nil {
			return fmt.Errorf("keda: %s: %w", path, err)
		}
	}
	return nil
}

// copyTree copies Go sources without tests, and whatever else is there.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		into := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(into, 0o700)
		case strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(into), 0o700); err != nil {
			return err
		}
		return os.WriteFile(into, text, 0o600)
	})
}

func rewrite(path string, change func(string) (string, error)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed, err := change(string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(changed), 0o600)
}

var errMoved = errors.New("the text to cut is not there; look at what this version has in its place")

// between splits text around what stands from the mark first up to the mark next.
func between(text, first, next string) (before, inside, after string, err error) {
	before, rest, found := strings.Cut(text, first)
	inside, after, ended := strings.Cut(rest, next)
	if !found || !ended {
		return "", "", "", errMoved
	}
	return before, inside, next + after, nil
}

var quotedName = regexp.MustCompile(`"([^"]+)"`)

// keepTriggers leaves in the switch over trigger types the cases of the kept scalers.
func keepTriggers(text string) (string, error) {
	const head = "switch triggerType {"
	before, inside, after, err := between(text, head, "default:")
	if err != nil {
		return "", err
	}
	var wanted []string
	for _, triggers := range keptScalers {
		wanted = append(wanted, triggers...)
	}
	kept := ""
	for _, one := range strings.Split(inside, "\tcase ")[1:] {
		names, _, _ := strings.Cut(one, ":")
		for _, name := range quotedName.FindAllStringSubmatch(names, -1) {
			if i := slices.Index(wanted, name[1]); i >= 0 {
				wanted, kept = slices.Delete(wanted, i, i+1), kept+"\tcase "+strings.TrimSpace(one)+"\n\t"
			}
		}
	}
	if len(wanted) > 0 {
		return "", fmt.Errorf("%w: no trigger %q", errMoved, wanted)
	}
	return before + head + "\n" + kept + after, nil
}

// cutAzureKeys names the keys of Azure's secrets by texts of their own.
func cutAzureKeys(text string) (string, error) {
	const imported = "\t\"github.com/kedacore/keda/v2/pkg/scalers/azure\"\n"
	if !strings.Contains(text, imported) {
		return "", errMoved
	}
	text = strings.Replace(text, imported, "", 1)
	return regexp.MustCompile(`\bazure\.(ServicePrincipal\w+)`).ReplaceAllString(text, `"trimmed-$1"`), nil
}

// cutEventGrid takes Azure's sink out of the function that makes sinks. The first "No destionation", spelt like
// this, is in that function.
func cutEventGrid(text string) (string, error) {
	before, _, after, err := between(text, "\tif spec.Destination.AzureEventGridTopic != nil {", "\te.log.Info(\"No destionation")
	return before + "\t_, _ = authParams, podIdentity\n" + after, err
}

const scalersStub = `package scalers

import v2 "k8s.io/api/autoscaling/v2"

// Declared in a scaler that was cut out.
const externalMetricType = v2.ExternalMetricSourceType
`

const resolverStub = `package resolver

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/scalers/authentication"
)

const DefaultVaultKubernetesAuthTokenFile = "/var/run/secrets/keda-vault/token"

var errTrimmed = errors.New("secret stores of clouds are cut out of this build")

func vaultAddressesEqual(a, b string) bool { return a == b }

type none struct{}

func (none) Stop() {}

type vault struct{ none }

func NewHashicorpVaultHandler(*kedav1alpha1.HashiCorpVault, *authentication.AuthClientSet, string) vault {
	return vault{}
}
func (vault) Initialize(logr.Logger) error { return errTrimmed }
func (vault) ResolveSecrets([]kedav1alpha1.VaultSecret) ([]kedav1alpha1.VaultSecret, error) {
	return nil, errTrimmed
}

type azure struct{ none }

func NewAzureKeyVaultHandler(*kedav1alpha1.AzureKeyVault) azure { return azure{} }
func (azure) Initialize(context.Context, client.Client, logr.Logger, string, corev1listers.SecretLister) error {
	return errTrimmed
}
func (azure) Read(context.Context, string, string) (string, error) { return "", errTrimmed }

type gcp struct{ none }

func NewGCPSecretManagerHandler(*kedav1alpha1.GCPSecretManager) gcp { return gcp{} }
func (gcp) Initialize(context.Context, client.Client, logr.Logger, string, corev1listers.SecretLister) error {
	return errTrimmed
}
func (gcp) Read(context.Context, string, string) (string, error) { return "", errTrimmed }

type aws struct{ none }

func NewAwsSecretManagerHandler(*kedav1alpha1.AwsSecretManager) aws { return aws{} }
func (aws) Initialize(context.Context, client.Client, logr.Logger, string, corev1listers.SecretLister, *corev1.PodSpec) error {
	return errTrimmed
}
func (aws) Read(context.Context, logr.Logger, string, string, string, string) (string, error) {
	return "", errTrimmed
}
`
