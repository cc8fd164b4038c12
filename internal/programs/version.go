package programs

import (
	"cmp"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// release and commit are set by the build of a release:
//
//	go build -ldflags "-X errand/internal/programs.release=1.4.0 -X errand/internal/programs.commit=<hash>"
var release, commit string

// build is what this program was built from: its version ("dev" if not a release), commit ("unknown" if so) and Go version.
func build() (version, revision, goVersion string) {
	revision, goVersion = commit, "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = cmp.Or(revision, s.Value)
			}
		}
	}
	return cmp.Or(release, "dev"), cmp.Or(revision, "unknown"), goVersion
}

// versionLine is what --version prints.
func versionLine(name string) string {
	version, revision, goVersion := build()
	return name + " " + version + " (" + revision + ", " + goVersion + ")"
}

// Version is the release of this program; "dev" for any other build.
func Version() string {
	version, _, _ := build()
	return version
}

func (m *metrics) ofBuild() {
	version, revision, goVersion := build()
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "errand_build_info", Help: "1; the labels say what the program was built from.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion}})
	info.Set(1)
	m.registry.MustRegister(info)
}
