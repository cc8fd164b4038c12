package sandbox

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

func TestServeListensUntilItsContextEnds(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, "127.0.0.1:0", strictOptions(), func(_ *Sandbox, url string) { ready <- url })
	}()
	url := <-ready
	response, err := http.Get(url + "/_sandbox/help")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	equal(t, "help", string(body), Help)
	if err := Serve(context.Background(), strings.TrimPrefix(url, "http://"), Options{}, func(*Sandbox, string) {}); err == nil {
		t.Error("a second one listens on the same address")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if r, err := http.Get(url); err == nil {
		_ = r.Body.Close()
		t.Error("it still listens")
	}
}

func TestHelpNamesEverything(t *testing.T) {
	var names []string
	names = append(names, kinds...)
	names = append(names, operationNames[:]...)
	for _, of := range []reflect.Type{reflect.TypeFor[Settings](), reflect.TypeFor[Fault]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" {
				names = append(names, name)
			}
		}
	}
	for _, path := range []string{"faults", "settings", "oracle", "decide", "cycle", "help"} {
		names = append(names, "/_sandbox/"+path)
	}
	for _, name := range names {
		if !strings.Contains(Help, name) && name != "seen" && name != "fired" {
			t.Errorf("Help does not mention %s", name)
		}
	}
	for line := range strings.Lines(Help) {
		if len(line) > 101 {
			t.Errorf("Help has a line of more than 100 columns: %s", line)
		}
	}
}

func TestTheSandboxImportsNothingOfTheClients(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "imports besides the standard library", strings.TrimSpace(string(out)),
		"errand/internal/loopback\nerrand/internal/style\nerrand/internal/sandbox")
}

func BenchmarkEnroll(b *testing.B) { benchmark(b, "/v3/mandates", enrollment1().String()) }

func BenchmarkSendToAThousand(b *testing.B) {
	benchmark(b, "/api/v0/messages", message1().with("to", many(1000)).String())
}

// benchmark measures the sandbox's own part of a call, without the network.
func benchmark(b *testing.B, path, body string) {
	s := newSandbox(b, strictOptions())
	set(b, s, func(v *Settings) { v.Quota = 1 << 60 })
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if w := do(s, request("POST", path, body)); w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
