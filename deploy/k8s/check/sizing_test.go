package check

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
)

// values are what this test reads of the example values for NATS.
type values struct {
	Config struct {
		Cluster struct {
			RouteURLs struct{ UseFQDN bool }
			TLS       struct{ Enabled bool }
		}
		JetStream struct {
			FileStore struct {
				PVC     struct{ Size resource.Quantity }
				MaxSize resource.Quantity
			}
		}
	}
	Container struct {
		Env   map[string]any
		Merge struct {
			Resources struct {
				Limits map[string]resource.Quantity
			}
		}
	}
}

// exampleValues reads the example values for NATS.
func exampleValues(t *testing.T) (v values) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "overlays/production/nats-values.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The chart's short names are in no certificate that the example asks for: by them no server accepts another.
func TestTheProductionExampleServersCallEachOtherByTheNamesInTheirCertificates(t *testing.T) {
	if c := exampleValues(t).Config.Cluster; !c.TLS.Enabled || !c.RouteURLs.UseFQDN {
		t.Errorf("between the servers tls.enabled is %v and routeURLs.useFQDN %v: want both", c.TLS.Enabled, c.RouteURLs.UseFQDN)
	}
}

// The production example gives each stream a limit, the servers have room for them all and
// for the recipient lists, on a disk with some to spare, and Go knows how much memory there is.
func TestTheProductionExampleFitsItsServers(t *testing.T) {
	v := exampleValues(t)
	store := v.Config.JetStream.FileStore
	if disk, most := store.PVC.Size.Value(), store.MaxSize.Value(); most <= 0 || most > disk/10*9 {
		t.Errorf("the servers may fill %d bytes of a disk of %d: want at most nine tenths", most, disk)
	}
	memory, _ := v.Container.Env["GOMEMLIMIT"].(string)
	known, err := resource.ParseQuantity(strings.TrimSuffix(memory, "B"))
	if limit := v.Container.Merge.Resources.Limits["memory"]; err != nil || known.Value() > limit.Value()/10*9 {
		t.Errorf("GOMEMLIMIT is %s, %v, of %v: want at most nine tenths", memory, err, limit.Value())
	}

	n, err := devkit.Configured(t.TempDir(), fmt.Sprintf("jetstream { max_file_store: %d }\n", store.MaxSize.Value()))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	s := render(t, "overlays/production")
	limits := s.environment(s.pod("errand-provision"), func(format string, args ...any) { t.Errorf(format, args...) })["PROVISION_MAX_BYTES"]
	c := exec.Command(filepath.Join(bin, "errand"), "provision", "--nats-url", n.URL, "--yes")
	c.Env = []string{"PROVISION_MAX_BYTES=" + limits}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("PROVISION_MAX_BYTES=%s: %v\n%s", limits, err, out)
	}
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	left := store.MaxSize.Value()
	for _, stream := range bus.Streams(bus.Limits{}) {
		made, err := js.Stream(t.Context(), stream.Name)
		if err != nil {
			t.Fatal(err)
		}
		most := made.CachedInfo().Config.MaxBytes
		if most <= 0 && !stream.AllowMsgSchedules { // the servers allow them no limit that refuses what comes
			t.Errorf("%s has no limit", stream.Name)
		}
		left -= max(most, 0)
	}
	if left < 4<<30 {
		t.Errorf("%d bytes are left for recipient lists and scheduled requests", left)
	}
}
