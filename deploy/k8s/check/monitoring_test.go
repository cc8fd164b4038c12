package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"sigs.k8s.io/yaml"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
)

// as reads a rendered object as a type.
func as[T any](t *testing.T, raw map[string]any) (object T) {
	t.Helper()
	text, err := yaml.Marshal(raw)
	if err == nil {
		err = yaml.Unmarshal(text, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

var exports struct {
	sync.Once
	names map[string]map[string]bool // the labels of each metric
}

// exported are the metrics that the real programs export, and their labels, once each has worked.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	exports.Do(func() {
		exports.names = map[string]map[string]bool{}
		work(t, func(page []byte) {
			text := expfmt.NewTextParser(model.UTF8Validation)
			families, err := text.TextToMetricFamilies(bytes.NewReader(page))
			if err != nil {
				t.Fatal(err)
			}
			for name, family := range families {
				if exports.names[name] == nil {
					exports.names[name] = map[string]bool{}
				}
				if family.GetType() == dto.MetricType_HISTOGRAM {
					exports.names[name]["le"] = true
				}
				for _, m := range family.GetMetric() {
					for _, label := range m.GetLabel() {
						exports.names[name][label.GetName()] = true
					}
				}
			}
		})
	})
	return exports.names
}

// work has the programs, at a separate server and sandbox, do one of each thing,
// and returns what they export then.
func work(t *testing.T, page func([]byte)) {
	t.Helper()
	n, err := devkit.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	box := sandbox.New(sandbox.Options{})
	defer box.Close()
	web := httptest.NewServer(box)
	defer web.Close()
	if out, err := exec.Command(filepath.Join(bin, "errand"), "provision", "--nats-url", n.URL, "--yes").CombinedOutput(); err != nil {
		t.Fatalf("provision: %v\n%s", err, out)
	}
	for subject, body := range map[string]string{
		bus.EnrollQueue.Filter: `{"request_id": "r1", "order_number": "DD001", "amount": "100.50", "payer_id_type": 1,
			"payer_id": "900101011234", "payer_name": "Ann", "payer_email": "ann@example.com",
			"payer_telephone_number": "0123456789", "frequency_mode": "MT", "application_reason": "Membership"}`,
		bus.TransactionsQueue.Filter: `{}`, bus.AccountQueue.Filter: `{}`,
		bus.SendQueue.Filter: `{"request_id": "m1", "to": "ann@example.com", "subject": "Hello", "content": "…"}`,
	} {
		if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	worked := map[string][]string{ // what shows that a program has done all
		"mandate-consumer": {`errand_requests_total{operation="mandate.enroll",outcome="succeeded",reason=""}`,
			`errand_requests_total{operation="mandate.transactions",outcome="listed",reason=""}`},
		"mail-consumer": {`errand_requests_total{operation="mail.send",outcome="accepted",reason=""}`,
			`errand_requests_total{operation="mail.account",outcome="reported",reason=""}`},
		"log-poller":         {`errand_deliveries_total{status="delivered"}`, "errand_matches_total{"},
		"transaction-poller": {`errand_transactions_total{confidence="exact",kind="application"}`},
		"callback-receiver":  {"errand_callbacks_total{"},
	}
	for _, name := range []string{"mandate-consumer", "mail-consumer", "log-poller", "transaction-poller", "callback-receiver"} {
		said, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		p := exec.Command(filepath.Join(bin, name))
		p.Env = []string{"NATS_URL=" + n.URL, "ADMIN_ADDR=127.0.0.1:0", "LOG_FORMAT=json", "POLL_INTERVAL=200ms", "FLEET_RATE=100",
			"MANDATE_API_URL=" + web.URL,
			"MANDATE_API_TOKEN=sandbox-token", "MANDATE_PORTAL_KEY=sandbox-portal", "MAIL_API_URL=" + web.URL, "MAIL_API_KEY=sandbox-key"}
		if name == "callback-receiver" {
			p.Env = append(p.Env, "CALLBACK_LISTEN=127.0.0.1:0", "MANDATE_CALLBACK_SECRET="+strings.Repeat("secret", 6))
		}
		p.Stdout, p.Stderr = said, said
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		text := scraped(said.Name(), worked[name])
		_ = p.Process.Kill() // it did what it is here for
		_ = p.Wait()
		if text == nil {
			log, _ := os.ReadFile(said.Name())
			t.Fatalf("%s does not do its work:\n%s", name, log)
		}
		page(text)
	}
}

var listens = regexp.MustCompile(`"addr":"([^"]+)".*admin server listens`)

// scraped is the metrics page of a program once it shows all of want; nil: it does not come to that.
func scraped(log string, want []string) []byte {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 300 {
		<-tick.C
		said, _ := os.ReadFile(log)
		found := listens.FindSubmatch(said)
		if found == nil {
			continue
		}
		r, err := http.Get("http://" + string(found[1]) + "/metrics")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err == nil && !slices.ContainsFunc(want, func(w string) bool { return !bytes.Contains(text, []byte(w)) }) {
			return text
		}
	}
	return nil
}

// rule is an alert.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	return alertsOf(t, monitoring(t))
}

func alertsOf(t *testing.T, s *set) (list []rule) {
	t.Helper()
	for _, raw := range s.raw {
		if raw["kind"] == "PrometheusRule" {
			object := as[struct {
				Spec struct{ Groups []struct{ Rules []rule } }
			}](t, raw)
			for _, g := range object.Spec.Groups {
				list = append(list, g.Rules...)
			}
		}
	}
	if len(list) == 0 {
		t.Fatal("there are no alerts")
	}
	return list
}

func monitoring(t *testing.T) *set {
	t.Helper()
	return render(t, "overlays/production", "components/monitoring")
}

// panels are the expressions of the dashboard by the panel's title.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	for _, m := range monitoring(t).configMaps {
		if m.Labels["grafana_dashboard"] == "1" {
			for _, text := range m.Data {
				if err := json.Unmarshal([]byte(text), &board); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	out := map[string][]string{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], strings.NewReplacer("$__rate_interval", "5m", "$namespace", "errand").Replace(target.Expr))
		}
	}
	if len(out) == 0 {
		t.Fatal("there is no dashboard")
	}
	return out
}

// target are the labels that the PodMonitor adds.
var target = []string{"namespace", "job", "pod", "container", "instance"}

// unknown are the metrics and labels of an expression that no program exports.
func unknown(text string, exported map[string]map[string]bool) (list []string, err error) {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, l := range target {
		known[l] = true
	}
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := v.Name
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(v.Name, part); cut && exported[base]["le"] {
				name = base
			}
		}
		if exported[name] == nil || exported[name]["le"] != (name != v.Name) { // a histogram has parts, and only it
			list = append(list, v.Name)
		}
		for l := range exported[name] {
			known[l] = true
		}
		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel && !exported[name][m.Name] && !slices.Contains(target, m.Name) {
				list = append(list, v.Name+"{"+m.Name+"}")
			}
		}
		return nil
	})
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		var by []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			by = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				by = n.VectorMatching.MatchingLabels
			}
		}
		for _, l := range by {
			if !known[l] {
				list = append(list, "by "+l)
			}
		}
		return nil
	})
	return list, nil
}

// kubelet are the metrics of containers, which every kubelet exports, and their labels.
var kubelet = map[string]map[string]bool{"container_memory_rss": {}, "container_spec_memory_limit_bytes": {}}

func TestAlertsAndDashboardNameWhatTheProgramsExport(t *testing.T) {
	names := maps.Clone(exported(t))
	maps.Copy(names, kubelet)
	texts := panels(t)
	for _, r := range alerts(t) {
		texts[r.Alert] = append(texts[r.Alert], r.Expr)
	}
	for where, list := range texts {
		for _, text := range list {
			if missing, err := unknown(text, names); err != nil || len(missing) > 0 {
				t.Errorf("%s: %s: %v, nobody exports %q", where, text, err, missing)
			}
		}
	}
	for _, wrong := range []string{"errand_hold", `errand_held{why="x"}`, `errand_requests_total{op="x"}`,
		"sum by (outcom) (errand_requests_total)",
		"errand_held_bucket", "errand_held == on (fate) errand_ready", "errand_requests_total_sum", "errand_request_duration_seconds"} {
		if missing, err := unknown(wrong, names); err != nil || len(missing) == 0 {
			t.Errorf("%s passes: %v", wrong, err)
		}
	}
}

// docs/run/observe.md has a line for each metric that the programs export themselves.
func TestTheDocumentKnowsEveryMetric(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "../../docs/run/observe.md"))
	if err != nil {
		t.Fatal(err)
	}
	names, listed := exported(t), map[string]bool{}
	for line := range strings.Lines(string(text)) {
		for _, name := range regexp.MustCompile(`errand_[a-z_]+`).FindAllString(line, -1) {
			base := name
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, part)
			}
			if names[base] == nil {
				t.Errorf("docs/run/observe.md names %s, which nobody exports", name)
			}
			listed[name] = listed[name] || strings.HasPrefix(line, "| `")
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "errand_") && !listed[name] {
			t.Errorf("docs/run/observe.md does not say what %s is", name)
		}
	}
}

// An alert says what it is about, what to do, and where there is more.
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "../../docs/on-call/alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			headings[strings.TrimSpace(title)] = true
		}
	}
	for _, raw := range monitoring(t).raw {
		if raw["kind"] != "PrometheusRule" {
			continue
		}
		rules, err := yaml.Marshal(raw["spec"])
		if err != nil {
			t.Fatal(err)
		}
		_, wrong := rulefmt.Parse(rules, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
		for _, err := range wrong {
			t.Errorf("Prometheus does not take it: %v", err)
		}
	}
	for _, r := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say what to do", r.Alert)
		}
		if !headings[r.Alert] {
			t.Errorf("docs/on-call/alerts.md has no %s", r.Alert)
		}
		delete(headings, r.Alert)
	}
	for title := range headings {
		if strings.HasPrefix(title, "Errand") {
			t.Errorf("docs/on-call/alerts.md has %s, which is not an alert", title)
		}
	}
}

// In production an alert leads to its heading on the page that the overlay names; with the component alone, to the
// document of the project.
func TestEveryAlertLeadsToTheRunbookThatTheOverlayNames(t *testing.T) {
	const shipped, own = "https://git.example.com/errand/blob/main/docs/on-call/alerts.md", "https://wiki.example.com/on-call?page=errand"
	edited := renderEdited(t, func(text string) string { return strings.Replace(text, shipped, own, 1) }, "overlays/production",
		"components/monitoring")
	for page, s := range map[string]*set{shipped: monitoring(t), own: edited,
		"docs/on-call/alerts.md": render(t, "overlays/sandbox", "components/monitoring")} {
		for _, r := range alertsOf(t, s) {
			if got, want := r.Annotations["runbook_url"], page+"#"+strings.ToLower(r.Alert); got != want {
				t.Errorf("%s leads to %s, want %s", r.Alert, got, want)
			}
		}
		if find(s.configMaps, "runbooks") != nil {
			t.Error("the ConfigMap runbooks goes to the cluster")
		}
	}
}

// Each alert speaks when it should and not otherwise: series a minute apart, and whom it names
// after half an hour.
func TestAlertsSpeakWhenTheyShould(t *testing.T) {
	said := map[string]bool{}
	exprs := map[string]string{}
	for _, r := range alerts(t) {
		exprs[r.Alert] = strings.Join(strings.Fields(r.Expr), " ")
	}
	const (
		mandate = `namespace="errand", job="mandate-consumer", pod="m-0"`
		second  = `namespace="errand", job="mandate-consumer", pod="m-1"`
		poller  = `namespace="errand", job="log-poller", pod="p-0"`
		standby = `namespace="errand", job="log-poller", pod="p-1"`
		lister  = `namespace="errand", job="transaction-poller", pod="t-0"`
		other   = `namespace="errand", job="transaction-poller", pod="t-1"`
		taker   = `namespace="errand", job="callback-receiver", pod="c-0"`
		enroll  = `, operation="mandate.enroll"`
		settled = `errand_requests_total{` + mandate + enroll
		calls   = `errand_upstream_call_duration_seconds_count{` + mandate + `, call="enroll"`
	)
	all := []string{`errand_ready{job="mandate-consumer"} 1x30`, `errand_ready{job="mail-consumer"} 0x30`,
		`errand_ready{job="log-poller"} 1x30`}
	for _, c := range []struct {
		alert, when string
		series      []string
		speaks      bool
	}{
		{"ErrandHeld", "one of two is held", []string{`errand_held{` + mandate + `} 1x30`, `errand_held{` + second + `} 0x30`}, true},
		{"ErrandHeld", "only the reads are", []string{`errand_held{` + mandate + `, operation="mandate.enroll"} 0x30`,
			`errand_held{` + mandate + `, operation="mandate.transactions"} 1x30`}, true},
		{"ErrandHeld", "none is", []string{`errand_held{` + mandate + `} 0x30`}, false},
		{"ErrandDown", "a program is not there", []string{`errand_ready{job="mandate-consumer"} 1x30`,
			`errand_ready{job="mail-consumer"} 0x30`}, true},
		{"ErrandDown", "a program of one of two installations is gone",
			append([]string{`errand_ready{job="log-poller", namespace="staging", pod="p"} 1x10`}, all...), true},
		{"ErrandDown", "all are there, ready or not", all, false},
		{"ErrandDown", "an optional program is gone", append([]string{`errand_ready{` + lister + `} 1x10`}, all...), true},
		{"ErrandDown", "an optional program is there", append([]string{`errand_ready{` + lister + `} 0x30`}, all...), false},
		{"ErrandNobodyReady", "both of two", []string{`errand_ready{` + poller + `} 0x30`, `errand_ready{` + standby + `} 0x30`}, true},
		{"ErrandNobodyReady", "one of two is", []string{`errand_ready{` + poller + `} 0x30`, `errand_ready{` + standby + `} 1x30`}, false},
		{"ErrandNobodyReady", "held: that has its own alert", []string{`errand_ready{` + mandate + `} 0x30`,
			`errand_held{` + mandate + `} 1x30`}, false},
		{"ErrandNobodyReady", "the console, which does no work",
			[]string{`errand_ready{job="console", namespace="errand", pod="console-0"} 0x30`}, false},
		{"ErrandNotReady", "the console", []string{`errand_ready{job="console", namespace="errand", pod="console-0"} 0x30`}, true},
		{"ErrandNotReady", "a poller", []string{`errand_ready{` + poller + `} 0x30`}, true},
		{"ErrandNotReady", "a consumer", []string{`errand_ready{` + mandate + `} 0x30`, `errand_held{` + mandate + `} 0x30`}, true},
		{"ErrandNotReady", "held: that has its own alert", []string{`errand_ready{` + mandate + `} 0x30`, `errand_held{` + mandate + `} 1x30`},
			false},
		{"ErrandBacklog", "nothing is settled", []string{`errand_queue_pending{` + mandate + enroll + `} 1x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x30`}, true},
		{"ErrandBacklog", "2 a second and 3,000 wait", []string{`errand_queue_pending{` + mandate + enroll + `} 3000x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0+120x30`}, true},
		{"ErrandBacklog", "the same, reported by two that each do half", []string{`errand_queue_pending{` + mandate + enroll + `} 3000x30`,
			`errand_queue_pending{` + second + enroll + `} 3000x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0+120x30`, `errand_requests_total{` + second + enroll +
				`, outcome="succeeded"} 0+120x30`}, false},
		{"ErrandBacklog", "held: that has its own alert", []string{`errand_queue_pending{` + mandate + enroll + `} 3000x30`,
			`errand_held{` + mandate + `} 1x30`, `errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x30`}, false},
		{"ErrandBacklog", "paused: that has its own alert", []string{`errand_queue_pending{` + mandate + enroll + `} 3000x30`,
			`errand_queue_paused{` + mandate + enroll + `} 1x30`, `errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x30`}, false},
		{"ErrandBacklog", "resumed a moment ago", []string{`errand_queue_pending{` + mandate + enroll + `} 3000x30`,
			`errand_queue_paused{` + mandate + enroll + `} 1x25 0x5`, `errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x30`}, false},
		{"ErrandBacklog", "the other operation is paused", []string{`errand_queue_pending{` + mandate + enroll + `} 3000x30`,
			`errand_queue_paused{` + mandate + `, operation="mandate.transactions"} 1x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x30`}, true},
		{"ErrandBacklog", "another lane is paused", []string{`errand_queue_pending{` + mandate + enroll + `, lane="default"} 3000x30`,
			`errand_queue_paused{` + mandate + enroll + `, lane="default"} 0x30`, `errand_queue_paused{` + mandate + enroll +
				`, lane="bulk"} 1x30`, `errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x30`}, true},
		{"ErrandBacklog", "only what is paused waits", []string{`errand_queue_pending{` + mandate + enroll + `, lane="default"} 1x30`,
			`errand_queue_pending{` + mandate + enroll + `, lane="bulk"} 9000x30`, `errand_queue_paused{` + mandate + enroll +
				`, lane="bulk"} 1x30`, `errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0+120x30`}, false},
		{"ErrandPaused", "one operation is", []string{`errand_queue_paused{` + mandate + enroll + `} 1x30`,
			`errand_queue_paused{` + mandate + `, operation="mandate.transactions"} 0x30`}, true},
		{"ErrandPaused", "none is any longer", []string{`errand_queue_paused{` + mandate + enroll + `} 1x20 0x10`}, false},
		{"ErrandStranded", "forgotten, and not started over", []string{`errand_queue_stranded{` + mandate + enroll + `} 5x30`}, true},
		{"ErrandStranded", "the program started the queue over", []string{`errand_queue_stranded{` + mandate + enroll + `} 0x25 5 5 0 0 0`},
			false},
		{"ErrandStranded", "a person paused another lane", []string{`errand_queue_stranded{` + mandate + enroll + `, lane="default"} 5x30`,
			`errand_queue_paused{` + mandate + enroll + `, lane="bulk"} 1x30`}, true},
		{"ErrandStranded", "a person paused the queue", []string{`errand_queue_stranded{` + mandate + enroll + `} 5x30`,
			`errand_queue_paused{` + mandate + enroll + `} 1x30`}, false},
		{"ErrandFailing", "one wrong request, and nothing else", []string{`errand_requests_total{` + mandate + enroll +
			`, outcome="failed"} 0x28 1 1`, `errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0x30`}, false},
		{"ErrandFailing", "four wrong requests, and nothing else", []string{`errand_requests_total{` + mandate + enroll +
			`, outcome="failed"} 0x26 1 2 3 4`}, false},
		{"ErrandFailing", "six, of twelve", []string{`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x25 2 4 6 6 6`,
			`errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0x25 2 4 6 6 6`}, true},
		{"ErrandFailing", "one in a hundred of many", []string{`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0+1x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0+99x30`}, false},
		{"ErrandFailing", "one in ten of many, by two replicas", []string{`errand_requests_total{` + mandate + enroll +
			`, outcome="failed"} 0+1x30`, `errand_requests_total{` + second + enroll + `, outcome="succeeded"} 0+9x30`}, true},
		{"ErrandFailing", "long ago", []string{`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 70x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0+9x30`}, false},
		{"ErrandFailed", "the first one", []string{`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0x28 1 1`}, true},
		{"ErrandFailed", "long ago", []string{`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 7x30`,
			`errand_requests_total{` + mandate + enroll + `, outcome="succeeded"} 0+9x30`}, false},
		{"ErrandUncertain", "the first one", []string{`errand_requests_total{` + mandate + enroll + `, outcome="uncertain"} 0x28 1 1`}, true},
		{"ErrandUncertain", "failures only", []string{`errand_requests_total{` + mandate + enroll + `, outcome="failed"} 0+1x30`}, false},
		{"ErrandBudgetBurns", "a fifth is given up", []string{settled + `, outcome="failed", reason="unavailable"} 0+1x30`,
			settled + `, outcome="succeeded", reason=""} 0+4x30`}, true},
		{"ErrandBudgetBurns", "a tenth is uncertain, for long", []string{settled + `, outcome="uncertain", reason="no_answer"} 0+1x30`,
			settled + `, outcome="succeeded", reason=""} 0+9x30`}, true},
		{"ErrandBudgetBurns", "a fifth was for five minutes", []string{settled + `, outcome="failed", reason="unavailable"} 0+1x5 5x25`,
			settled + `, outcome="succeeded", reason=""} 0+4x30`}, false},
		{"ErrandBudgetBurns", "the publishers' faults, and refusals", []string{settled + `, outcome="failed", reason="invalid_request"} 0+5x30`,
			settled + `, outcome="failed", reason="refused"} 0+5x30`}, false},
		{"ErrandBudgetBurns", "one in a hundred", []string{settled + `, outcome="uncertain", reason="no_answer"} 0+1x30`,
			settled + `, outcome="succeeded", reason=""} 0+99x30`}, false},
		{"ErrandPanics", "the first one", []string{`errand_panics_total{` + mandate + enroll + `} 0x28 1 1`}, true},
		{"ErrandPanics", "long ago", []string{`errand_panics_total{` + mandate + enroll + `} 3x30`}, false},
		{"ErrandCallsOfUnknownFate", "a tenth", []string{calls + `, fate="unknown"} 0+1x30`, calls + `, fate="success"} 0+9x30`}, true},
		{"ErrandCallsOfUnknownFate", "a hundredth", []string{calls + `, fate="unknown"} 0+1x30`, calls + `, fate="success"} 0+99x30`}, false},
		{"ErrandCallsOfUnknownFate", "probes of a hold", []string{calls + `, fate="unknown"} 0+1x30`, `errand_held{` + mandate + `} 1x30`},
			false},
		{"ErrandCallsTurnedAway", "probes of a hold", []string{calls + `, fate="held"} 0+1x30`, `errand_held{` + mandate + `} 1x30`}, false},
		{"ErrandCallsTurnedAway", "a third, of two kinds", []string{calls + `, fate="busy"} 0+2x30`, calls + `, fate="held"} 0+1x30`,
			calls + `, fate="success"} 0+6x30`}, true},
		{"ErrandCallsTurnedAway", "a tenth", []string{calls + `, fate="busy"} 0+1x30`, calls + `, fate="success"} 0+9x30`}, false},
		{"ErrandPollLag", "both", []string{`errand_poll_lag_seconds{` + poller + `} 400x30`,
			`errand_poll_lag_seconds{` + standby + `} 0+60x30`}, true},
		{"ErrandPollLag", "one of two", []string{`errand_poll_lag_seconds{` + poller + `} 3x30`,
			`errand_poll_lag_seconds{` + standby + `} 0+60x30`}, false},
		{"ErrandNoPollerAtWork", "reads that all go wrong", []string{`errand_upstream_call_duration_seconds_count{` + poller +
			`, call="logs", fate="success"} 5x30`, `errand_upstream_call_duration_seconds_count{` + poller +
			`, call="logs", fate="held"} 0+1x30`}, true},
		{"ErrandNoPollerAtWork", "not one read since they started", []string{`errand_upstream_call_duration_seconds_count{` + poller +
			`, call="logs", fate="success"} 0x30`}, true},
		{"ErrandNoPollerAtWork", "one of two reads", []string{`errand_upstream_call_duration_seconds_count{` + poller +
			`, call="logs", fate="success"} 5x30`, `errand_upstream_call_duration_seconds_count{` + standby +
			`, call="logs", fate="success"} 0+6x30`}, false},
		{"ErrandTransactionsLag", "the only one", []string{`errand_transactions_lag_seconds{` + lister + `} 0+60x30`}, true},
		{"ErrandTransactionsLag", "it is read", []string{`errand_transactions_lag_seconds{` + lister + `} 40x30`}, false},
		{"ErrandLookUpsLate", "by callbacks", []string{`errand_lookups_late_seconds{` + lister + `, by="callback"} 400x30`,
			`errand_lookups_total{` + lister + `, by="callback"} 0+60x30`}, true},
		{"ErrandLookUpsLate", "one no longer looks, the other in time", []string{`errand_lookups_late_seconds{` + lister +
			`, by="look_up"} 400x30`, `errand_lookups_total{` + lister + `, by="look_up"} 60x30`,
			`errand_lookups_late_seconds{` + other + `, by="look_up"} 2x30`, `errand_lookups_total{` + other + `, by="look_up"} 0+60x30`}, false},
		{"ErrandLookUpsLate", "nothing is looked up any longer", []string{`errand_lookups_late_seconds{` + lister + `, by="callback"} 400x30`,
			`errand_lookups_total{` + lister + `, by="callback"} 60x30`}, false},
		{"ErrandEnrolledTwice", "one", []string{`errand_mandate_duplicates_total{` + lister + `} 0x28 1 1`}, true},
		{"ErrandEnrolledTwice", "one long ago", []string{`errand_mandate_duplicates_total{` + lister + `} 1x30`}, false},
		{"ErrandCallbacksRefused", "the first one", []string{`errand_callbacks_total{` + taker + `, status="503"} 0x28 1 1`}, true},
		{"ErrandCallbacksRefused", "one in a hundred", []string{`errand_callbacks_total{` + taker + `, status="503"} 0+1x30`,
			`errand_callbacks_total{` + taker + `, status="200"} 0+99x30`}, false},
		{"ErrandCallbacksForeign", "all of them", []string{`errand_callbacks_total{` + taker + `, status="404"} 0+1x30`,
			`errand_callbacks_total{` + taker + `, status="200"} 0x30`}, true},
		{"ErrandCallbacksForeign", "among others", []string{`errand_callbacks_total{` + taker + `, status="404"} 0+9x30`,
			`errand_callbacks_total{` + taker + `, status="200"} 0x20 1x10`}, false},
		{"ErrandCallbacksRefused", "guesses of the token", []string{`errand_callbacks_total{` + taker + `, status="404"} 0+9x30`}, false},
		{"ErrandRecipientsFull", "nine tenths", []string{`errand_poller_recipients{` + poller + `} 90x30`,
			`errand_poller_recipients_limit{` + poller + `} 100x30`}, true},
		{"ErrandRecipientsFull", "no limit", []string{`errand_poller_recipients{` + poller + `} 90x30`,
			`errand_poller_recipients_limit{` + poller + `} 0x30`}, false},
		{"ErrandMemory", "up to the limit", []string{`process_resident_memory_bytes{` + poller + `} 160x30`,
			`go_gc_gomemlimit_bytes{` + poller + `} 160x30`, `errand_ready{` + poller + `} 1x30`}, true},
		{"ErrandMemory", "another program's", []string{`process_resident_memory_bytes{namespace="x", pod="y"} 160x30`,
			`go_gc_gomemlimit_bytes{namespace="x", pod="y"} 160x30`, `errand_ready{` + poller + `} 1x30`}, false},
		{"ErrandMemory", "no limit", []string{`process_resident_memory_bytes{` + poller + `} 160x30`,
			`go_gc_gomemlimit_bytes{` + poller + `} 9e18x30`, `errand_ready{` + poller + `} 1x30`}, false},
		{"ErrandReconnects", "once in two minutes", []string{`errand_nats_reconnects_total{` + mandate +
			`} 0x15 0 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7`}, true},
		{"ErrandReconnects", "servers that were updated", []string{`errand_nats_reconnects_total{` + mandate + `} 0x20 1 1 2 2 3x10`}, false},
		{"ErrandStreamRefuses", "full", []string{`errand_stream_fault{` + mandate + `, stream="MANDATE_EVENTS"} 1x30`}, true},
		{"ErrandStreamRefuses", "room", []string{`errand_stream_fault{` + mandate + `, stream="MANDATE_EVENTS"} 1x20 0x10`}, false},
		{"ErrandQueueRefuses", "full", []string{`errand_stream_bytes{` + mandate + `, stream="MANDATE_REQUESTS"} 98x30`,
			`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_REQUESTS"} 100x30`}, true},
		{"ErrandQueueRefuses", "half full", []string{`errand_stream_bytes{` + mandate + `, stream="MANDATE_REQUESTS"} 50x30`,
			`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_REQUESTS"} 100x30`}, false},
		{"ErrandQueueRefuses", "no limit", []string{`errand_stream_bytes{` + mandate + `, stream="MANDATE_REQUESTS"} 50x30`,
			`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_REQUESTS"} 0x30`}, false},
		{"ErrandQueueRefuses", "events are full", []string{`errand_stream_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 98x30`,
			`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 100x30`}, false},
		{"ErrandStreamFills", "nearly full", []string{`errand_stream_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 81x30`,
			`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 100x30`}, true},
		{"ErrandStreamFills", "room", []string{`errand_stream_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 79x30`,
			`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 100x30`}, false},
		{"ErrandStreamUnlimited", "no limit", []string{`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 0x30`}, true},
		{"ErrandStreamUnlimited", "a limit", []string{`errand_stream_max_bytes{` + mandate + `, stream="MANDATE_EVENTS"} 100x30`}, false},
		{"ErrandReplicas", "one is away", []string{`errand_stream_replicas{` + mandate + `, stream="MANDATE_EVENTS"} 3x30`,
			`errand_stream_replicas_current{` + mandate + `, stream="MANDATE_EVENTS"} 2x30`}, true},
		{"ErrandReplicas", "all there", []string{`errand_stream_replicas{` + mandate + `, stream="MANDATE_EVENTS"} 3x30`,
			`errand_stream_replicas_current{` + mandate + `, stream="MANDATE_EVENTS"} 3x30`}, false},
		{"ErrandNATSMemory", "at the limit", []string{`container_memory_rss{namespace="nats", pod="nats-0", container="nats"} 90x30`,
			`container_spec_memory_limit_bytes{namespace="nats", pod="nats-0", container="nats"} 100x30`}, true},
		{"ErrandNATSMemory", "room", []string{`container_memory_rss{namespace="nats", pod="nats-0", container="nats"} 60x30`,
			`container_spec_memory_limit_bytes{namespace="nats", pod="nats-0", container="nats"} 100x30`}, false},
		{"ErrandNATSMemory", "no limit", []string{`container_memory_rss{namespace="nats", pod="nats-0", container="nats"} 90x30`,
			`container_spec_memory_limit_bytes{namespace="nats", pod="nats-0", container="nats"} 0x30`}, false},
		{"ErrandRestarts", "four starts", []string{`process_start_time_seconds{` + poller + `} 1x10 2x5 3x5 4x5`,
			`errand_ready{` + poller + `} 1x30`}, true},
		{"ErrandRestarts", "an update", []string{`process_start_time_seconds{` + poller + `} 1x10 2x20`, `errand_ready{` + poller + `} 1x30`},
			false},
	} {
		expr, ok := exprs[c.alert]
		if !ok {
			t.Errorf("there is no alert %s", c.alert)
			continue
		}
		vector := evaluate(t, expr, c.series)
		if (len(vector) > 0) != c.speaks {
			t.Errorf("%s, %s: it names %v, want it to speak: %v", c.alert, c.when, vector, c.speaks)
		}
		for _, sample := range vector {
			if c.alert == "ErrandDown" && sample.Metric.Get("job") == "" || sample.Metric.IsEmpty() {
				t.Errorf("%s, %s: it does not say who: %v", c.alert, c.when, sample.Metric)
			}
		}
		said[c.alert+fmt.Sprint(c.speaks)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(exprs)) {
		if !said[name+"true"] || !said[name+"false"] {
			t.Errorf("%s is not tried both ways", name)
		}
	}
}

// evaluate returns what an expression names after half an hour of series, which have a point a minute.
func evaluate(t *testing.T, expr string, texts []string) promql.Vector {
	t.Helper()
	var all []storage.Series
	for _, text := range texts {
		names, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var points []chunks.Sample
		for i, v := range values {
			points = append(points, point{at: int64(i) * time.Minute.Milliseconds(), value: v.Value})
		}
		all = append(all, storage.NewListSeries(names, points))
	}
	series := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints,
		matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{}
		for _, s := range all {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				found.rest = append(found.rest, s)
			}
		}
		return found
	}}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	query, err := engine.NewInstantQuery(t.Context(), series, nil, expr, time.Unix(0, 0).Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	vector, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return vector
}

type seriesSet struct {
	rest []storage.Series
	at   storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return s.at }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// point is a float; nothing else is asked of it.
type point struct {
	at    int64
	value float64
	chunks.Sample
}

func (p point) T() int64               { return p.at }
func (point) ST() int64                { return 0 }
func (p point) F() float64             { return p.value }
func (point) Type() chunkenc.ValueType { return chunkenc.ValFloat }
